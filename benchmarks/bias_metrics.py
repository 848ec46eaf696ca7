"""Bias metrics of a million rows, against plain Python: time and memory.   python -m benchmarks bias_metrics

A row is one group: eight scores, a class, two subjects, an attribute. What a system gets is made before its
clock starts (tensors for ours, lists of numbers for the reference); memory is what it takes beyond that.
"""

from __future__ import annotations

import resource
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.report import Row, rows_of
from benchmarks.turns import Turn, side_by_side
from metrics.bias.group_bias import GroupBias

CLASSES, SUBJECTS, ATTRIBUTES = 4, 40, 30
BATCH = 65_536
OURS, REFERENCE = "interventune", "plain Python"
MEANS = [name + suffix for name in ("mu", "eta", "theta") for suffix in ("", "_normalised")]
NAMES = ("n", "mean_abs_c", "delta", "eps", "mass", *MEANS)


def measure(*, repeats: int, quick: bool) -> list[Row]:
    """Rows a second; seconds, memory at its worst beyond the input, and how far results differ as notes."""
    rows = 2_000 if quick else 1_000_000
    systems = {OURS: run_ours, REFERENCE: run_reference}
    turns = side_by_side(
        systems, repeats, apart=not quick, timed=lambda turn: (rows, turn + 1), warm=(1_000, 0)
    )
    apart = max(difference(a.found, b.found) for a, b in zip(turns[OURS], turns[REFERENCE], strict=True))
    notes = {"rows": rows, "largest difference of a result": apart}
    return rows_of("bias_metrics", "rows/s", turns, notes)


def random_rows(rows: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Scores (N, 4, 2) float32, classes (N,), subjects (N, 2), attributes (N,)."""
    make = torch.Generator().manual_seed(seed)
    first_N = torch.randint(SUBJECTS, (rows,), generator=make)
    second_N = (first_N + torch.randint(1, SUBJECTS, (rows,), generator=make)) % SUBJECTS
    return (
        torch.rand(rows, 4, 2, generator=make),
        torch.randint(CLASSES, (rows,), generator=make),
        torch.stack((first_N, second_N), dim=1),
        torch.randint(ATTRIBUTES, (rows,), generator=make),
    )


def run_ours(rows: int, seed: int) -> Turn:
    """The torchmetrics metric, batch by batch, as validation feeds it."""
    inputs = random_rows(rows, seed)
    memory, began = Memory(), time.perf_counter()
    metric = GroupBias(CLASSES, SUBJECTS, ATTRIBUTES)
    for at in range(0, rows, BATCH):
        metric.update(*(value[at : at + BATCH] for value in inputs))
    result = metric.compute()
    turn = _turn(rows, began, memory)
    classes = [k for k in range(CLASSES) if result.n_K[k]]
    found = {k: {name: getattr(result, f"{name}_K")[k].item() for name in NAMES} for k in classes}
    return turn._replace(found=found)


def run_reference(rows: int, seed: int) -> Turn:
    """Dictionaries and a loop."""
    inputs: list[Any] = [value.tolist() for value in random_rows(rows, seed)]
    memory, began = Memory(), time.perf_counter()
    found = reference_bias(zip(*inputs, strict=True))
    return _turn(rows, began, memory)._replace(found=found)


def _turn(rows: int, began: float, memory: Memory) -> Turn:
    seconds = time.perf_counter() - began
    notes = {"seconds": seconds, "peak memory beyond the input MB": memory.grown() / 1e6}
    return Turn(rows / seconds, notes)


def difference(one: dict[int, dict[str, float]], two: dict[int, dict[str, float]]) -> float:
    """The largest difference between two results; ValueError if they hold other classes."""
    if one.keys() != two.keys():
        raise ValueError(f"the systems found other classes: {sorted(one)} and {sorted(two)}")
    return max(abs(one[k][name] - two[k][name]) for k in one for name in NAMES)


class Memory:
    """The most memory that this process takes from now on, beyond what it has now.

    Linux keeps a high-water mark that can be set back; elsewhere it counts from the start of the process.
    """

    def __init__(self) -> None:
        self._status = Path("/proc/self/status")
        try:
            Path("/proc/self/clear_refs").write_text("5")
        except OSError:
            self._status = Path("/nonexistent")
        self._before = self._peak()

    def grown(self) -> int:
        """In bytes."""
        return self._peak() - self._before

    def _peak(self) -> int:
        if self._status.exists():
            lines = self._status.read_text(encoding="utf-8").splitlines()
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


GroupRow = tuple[Sequence[Sequence[float]], int, Sequence[int], int]
"""Scores of the four variants by subject, class, the two subjects, attribute."""


def reference_bias(rows: Iterable[GroupRow]) -> dict[int, dict[str, float]]:
    """Per class: n, mu, eta, theta (each also normalised), mean_abs_c, delta, eps and mass."""
    cells: dict[tuple[int, int, int, int], list[float]] = {}
    totals: dict[int, list[float]] = defaultdict(lambda: [0.0] * 5)
    for score, k, (one, two), attribute in rows:
        (a1, a2), (b1, b2), (c1, c2), (d1, d2) = score
        pair_c = ((a1 - b1 + c1 - d1) - (a2 - b2 + c2 - d2)) / 4
        shares = []
        for first, second in ((a1, a2), (b1, b2), (c1, c2), (d1, d2)):
            both = first + second
            shares.append((first - second) / both if both > 1e-12 else 0.0)
        normalised = (shares[0] - shares[1] + shares[2] - shares[3]) / 4
        total = totals[k]
        total[0] += 1
        total[1] += abs(pair_c)
        total[2] += (abs(a1 - c1) + abs(a2 - c2) + abs(b1 - d1) + abs(b2 - d2)) / 4
        total[3] += (abs(a1 - b2) + abs(a2 - b1) + abs(c1 - d2) + abs(c2 - d1)) / 4
        total[4] += (a1 + a2 + b1 + b2 + c1 + c2 + d1 + d2) / 4
        if one > two:
            one, two, pair_c, normalised = two, one, -pair_c, -normalised
        key = (k, one, two, attribute)
        cell = cells.get(key)
        if cell is None:
            cell = cells[key] = [0.0] * 5
        cell[0] += 1
        cell[1] += pair_c
        cell[2] += (pair_c > 0) - (pair_c < 0)
        cell[3] += normalised
        cell[4] += (normalised > 0) - (normalised < 0)
    return {k: _of_class(k, total, cells) for k, total in sorted(totals.items())}


def _of_class(
    k: int, total: Sequence[float], cells: dict[tuple[int, int, int, int], list[float]]
) -> dict[str, float]:
    n = total[0]
    result = {
        "n": n,
        "mean_abs_c": total[1] / n,
        "delta": total[2] / n,
        "eps": total[3] / n,
        "mass": total[4] / n,
    }
    own = {key[1:]: cell for key, cell in cells.items() if key[0] == k}
    for suffix, at in (("", 1), ("_normalised", 3)):
        subjects: dict[tuple[int, int], list[float]] = defaultdict(lambda: [0.0] * 3)
        pairs: dict[tuple[int, int], float] = defaultdict(float)
        for (one, two, attribute), cell in own.items():
            for subject, sign in ((one, 1.0), (two, -1.0)):
                sums = subjects[subject, attribute]
                sums[0] += cell[0]
                sums[1] += sign * cell[at]
                sums[2] += sign * cell[at + 1]
            pairs[one, two] = max(pairs[one, two], abs(cell[at] / cell[0]))
        largest: dict[int, float] = defaultdict(float)
        signs: dict[int, list[float]] = defaultdict(list)
        for (subject, _), (count, c, sign) in subjects.items():
            largest[subject] = max(largest[subject], abs(c / count))
            signs[subject].append(abs(sign / count))
        result["mu" + suffix] = sum(largest.values()) / len(largest)
        result["eta" + suffix] = sum(sum(v) / len(v) for v in signs.values()) / len(signs)
        result["theta" + suffix] = sum(pairs.values()) / len(pairs)
    return result
