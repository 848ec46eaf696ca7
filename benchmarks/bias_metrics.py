"""Bias metrics of a million rows, against plain Python: time and memory.   python -m benchmarks bias_metrics

A row is one group: eight scores, a class, two subjects, an attribute. What a system gets is made before its
clock starts (tensors for ours, lists of numbers for the reference); memory is what it takes beyond that.
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.bias_reference import reference_bias
from benchmarks.result import Result
from benchmarks.turns import in_turns, players
from metrics.bias.group_bias import GroupBias

CLASSES, SUBJECTS, ATTRIBUTES = 4, 40, 30
BATCH = 65_536
OURS, REFERENCE = "interventune", "plain Python"


class Measured(NamedTuple):
    """One turn of one system."""

    seconds: float
    peak_bytes: int
    found: dict[int, dict[str, float]]


def measure(*, repeats: int, quick: bool) -> list[Result]:
    """Rows a second; seconds, memory at its worst beyond the input, and how far results differ as notes.

    Args:
        repeats: how many, each on other rows.
        quick: a few rows, to see that everything runs.
    """
    rows = 2_000 if quick else 1_000_000
    systems = {OURS: run_ours, REFERENCE: run_reference}
    with players(list(systems), apart=not quick) as call:
        for name, system in systems.items():
            call[name](system, 1_000, 0)
        turns = in_turns(list(systems), repeats, lambda name, turn: call[name](systems[name], rows, turn + 1))
    apart = max(difference(a.found, b.found) for a, b in zip(turns[OURS], turns[REFERENCE], strict=True))
    return [
        Result(
            benchmark="bias_metrics",
            system=name,
            unit="rows/s",
            values=tuple(rows / turn.seconds for turn in measured),
            notes={
                "rows": rows,
                "seconds": round(sorted(turn.seconds for turn in measured)[repeats // 2], 3),
                "peak memory beyond the input MB": round(max(turn.peak_bytes for turn in measured) / 1e6, 1),
                "largest difference of a result": apart,
            },
        )
        for name, measured in turns.items()
    ]


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


def run_ours(rows: int, seed: int) -> Measured:
    """The torchmetrics metric, batch by batch, as validation feeds it."""
    inputs = random_rows(rows, seed)
    memory, began = Memory(), time.perf_counter()
    metric = GroupBias(CLASSES, SUBJECTS, ATTRIBUTES)
    for at in range(0, rows, BATCH):
        metric.update(*(value[at : at + BATCH] for value in inputs))
    result = metric.compute()
    seconds = time.perf_counter() - began
    found = {
        k: {name: getattr(result, f"{name}_K")[k].item() for name in NAMES}
        for k in range(CLASSES)
        if result.n_K[k]
    }
    return Measured(seconds, memory.grown(), found)


def run_reference(rows: int, seed: int) -> Measured:
    """Dictionaries and a loop."""
    inputs: list[Any] = [value.tolist() for value in random_rows(rows, seed)]
    memory, began = Memory(), time.perf_counter()
    found = reference_bias(zip(*inputs, strict=True))
    return Measured(time.perf_counter() - began, memory.grown(), found)


NAMES = (
    "n",
    "mean_abs_c",
    "delta",
    "eps",
    "mass",
    *(name + suffix for name in ("mu", "eta", "theta") for suffix in ("", "_normalised")),
)


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
        try:
            Path("/proc/self/clear_refs").write_text("5")
            self._resets = True
        except OSError:
            self._resets = False
        self._before = self._peak()

    def grown(self) -> int:
        """In bytes."""
        return self._peak() - self._before

    def _peak(self) -> int:
        if self._resets:
            lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
