"""results.csv and results.md: the latest figures of every benchmark, with the date and machine of each."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from storage.errors import DataError
from storage.files import write_text

COLUMNS = ("benchmark", "system", "unit", "median", "low", "high", "ratio", "ratio_low", "ratio_high", "n")
ABOUT = ("notes", "command", "date", "machine")
HEAD = """# Benchmarks

Written by `python -m benchmarks`. Ours is the first system of each benchmark; the others took turns with it
in the same run. Figures are medians of n repetitions, low and high the smallest and largest; a ratio is the
median of the ratios of simultaneous repetitions, above 1 where ours is better.
"""


@dataclass(frozen=True, kw_only=True)
class Result:
    """The repeated measurements of one system.

    Args:
        benchmark: what was measured, `training/minilm`; its systems are compared with each other.
        system: whose figure it is: `interventune`, `Trainer, tuned`.
        unit: of `values`.
        values: one figure a repetition; systems of one benchmark take turns, so that noise hits all alike.
        higher_is_better: False for seconds and bytes.
        notes: sizes, seconds, peak memory, numbers that must agree.
    """

    benchmark: str
    system: str
    unit: str
    values: tuple[float, ...]
    higher_is_better: bool = True
    notes: dict[str, float | int | str] = field(default_factory=dict)

    def ratios(self, other: Result) -> list[float]:
        """How many times better this is than `other`, for each repetition."""
        pairs = zip(self.values, other.values, strict=True)
        return [mine / its if self.higher_is_better else its / mine for mine, its in pairs]


def table_of(results: Sequence[Result], command: str, date: str) -> pd.DataFrame:
    """One row for each system; the first of each benchmark is ours.

    Raises:
        ValueError: systems of one benchmark differ in the number of repetitions.
    """
    ours: dict[str, Result] = {}
    machine = ", ".join(f"{key} {value}" for key, value in describe_machine().items())
    rows = []
    for result in results:
        first = ours.setdefault(result.benchmark, result)
        ratios = first.ratios(result) if first is not result else []
        middle = [median(ratios), min(ratios), max(ratios)] if ratios else [None] * 3
        values = [median(result.values), min(result.values), max(result.values)]
        figures = (result.benchmark, result.system, result.unit, *values, *middle, len(result.values))
        rows.append((*figures, json.dumps(result.notes), command, date, machine))
    return pd.DataFrame(rows, columns=[*COLUMNS, *ABOUT])


def record(folder: Path, table: pd.DataFrame) -> None:
    """Put the rows of a command in the place of its former ones, keep the others, write both files.

    Raises:
        DataError: results.csv is something else.
    """
    path = folder / "results.csv"
    if path.exists():
        former = pd.read_csv(path)
        if list(former) != list(table):
            raise DataError(f"{path}: not a file of benchmark results; remove it")
        table = pd.concat([former[~former["command"].isin(table["command"])], table])
    table = table.sort_values("benchmark", kind="stable")
    write_text(path, table.to_csv(index=False))
    pages = [HEAD, markdown(table)]
    for (name, command, date, machine), systems in table.groupby(["benchmark", "command", "date", "machine"]):
        pages.append(f"\n## {name}\n\n`{command}`, {date}. {machine}.\n")
        for system, notes in zip(systems["system"], systems["notes"], strict=True):
            pages.append(f"- {system}: " + ", ".join(f"{k} {_text(v)}" for k, v in json.loads(notes).items()))
    write_text(folder / "results.md", "\n".join(pages) + "\n")


def markdown(table: pd.DataFrame) -> str:
    """The figures as a Markdown table."""
    rows = [COLUMNS, ["---"] * len(COLUMNS), *table[list(COLUMNS)].itertuples(index=False)]
    return "\n".join(
        "| " + " | ".join(_text(cell).replace("|", "\\|") for cell in row) + " |" for row in rows
    )


def _text(value: Any) -> str:
    """Three digits that count, without an exponent; words as they are."""
    if isinstance(value, float):
        digits = "" if pd.isna(value) else f"{value:.3g}"
        return f"{value:,.0f}" if "e+" in digits or abs(value) >= 1000 else digits
    return "" if value is None else str(value)


def describe_machine() -> dict[str, str | int]:
    """Processor, cores, threads, memory, GPU, versions: enough to know whether two results compare."""
    import psutil
    import torch

    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text(encoding="utf-8").splitlines() if cpus.exists() else []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return {
        "cpu": next(names, platform.processor() or platform.machine()),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "memory GiB": round(psutil.virtual_memory().total / 2**30),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": version("transformers"),
        "pytorch-lightning": version("pytorch-lightning"),
    }
