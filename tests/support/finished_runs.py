"""What two finished runs must have alike, and what a kill must not leave behind."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

TIMES = ("time", "seconds", "per_s", "per_second")
"""Parts of the names of metrics that differ from run to run."""


def temporary_files(folder: Path) -> list[Path]:
    """Files that were being written."""
    return [path for path in folder.rglob(".*.tmp") if path.is_file()] if folder.exists() else []


def unreadable(folder: Path) -> str:
    """Which complete-looking checkpoint does not load; empty if all do."""
    for path in folder.glob("checkpoints/*.ckpt"):
        try:
            torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:
            return f"{path.name}: {type(error).__name__}"
    return ""


def differences(one: Path, two: Path) -> Iterator[str]:
    """How two finished runs differ: in weights, optimiser, best.ckpt, metrics, curves."""
    lasts = (folder / "checkpoints/last.ckpt" for folder in (one, two))
    first, second = (torch.load(path, weights_only=True) for path in lasts)
    for part in ("state_dict", "optimizer_states", "lr_schedulers", "global_step"):
        if not same(first[part], second[part]):
            yield f"{part} of last.ckpt differs"
    steps = []
    for path in (folder / "checkpoints/best.ckpt" for folder in (one, two)):
        steps.append(torch.load(path, weights_only=True)["global_step"] if path.exists() else None)
    if steps[0] != steps[1]:
        yield f"best.ckpt is of step {steps[1]}, not {steps[0]}"
    scores = [json.loads((folder / "metrics.json").read_text()) for folder in (one, two)]
    for key in sorted(scores[0].keys() | scores[1].keys()):
        if not any(part in key for part in TIMES) and scores[0].get(key) != scores[1].get(key):
            yield f"metrics.json: {key} is {scores[1].get(key)}, not {scores[0].get(key)}"
    curves = [read_curves(folder / "metrics.csv") for folder in (one, two)]
    if curves[0] != curves[1]:
        rows = [i for i, (a, b) in enumerate(zip(*curves, strict=False)) if a != b]
        yield f"metrics.csv differs: {[len(c) for c in curves]} rows, first at {rows[:1]}"
    if left := temporary_files(two):
        yield f"temporary files are left: {', '.join(path.name for path in left)}"


def same(one: Any, two: Any) -> bool:
    """Bit-equal, all the way down."""
    if isinstance(one, torch.Tensor):
        return isinstance(two, torch.Tensor) and one.dtype == two.dtype and torch.equal(one, two)
    if isinstance(one, dict):
        alike = isinstance(two, dict) and one.keys() == two.keys()
        return alike and all(same(one[key], two[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(two) and all(map(same, one, two))
    return bool(one == two)


def read_curves(path: Path) -> list[tuple[str, ...]]:
    """The lines of metrics.csv without those of times."""
    with open(path, newline="") as file:
        return [tuple(row) for row in csv.reader(file) if not any(part in row[2] for part in TIMES)]
