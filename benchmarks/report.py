"""results.json and results.md: the latest figures of every benchmark, with the date and machine of each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.result import Result
from storage.errors import DataError
from storage.json_files import atomic_text, load_json

JSON, MARKDOWN = "results.json", "results.md"
Entry = dict[str, Any]

_HEAD = """# Benchmarks

Written by `python -m benchmarks`. Ours is the first system of each benchmark; the others took turns with it
in the same run. Figures are medians of all repetitions; a ratio is the median of the ratios of simultaneous
repetitions, above 1 where ours is better, and its spread is the smallest and the largest of them.
"""


def entries_of(module: str, results: Iterable[Result], about: Mapping[str, Any]) -> dict[str, Entry]:
    """The entries of results.json, by benchmark.

    Args:
        module: name of the benchmark module that measured them.
        results: of any number of benchmarks; the first of each is ours.
        about: `date`, `machine`, `quick`: stored with every entry.

    Raises:
        ValueError: systems of one benchmark differ in unit or in the number of repetitions.
    """
    grouped: dict[str, list[Result]] = {}
    for result in results:
        grouped.setdefault(result.benchmark, []).append(result)
    return {
        name: {"module": module, **about, "systems": _systems(name, made)} for name, made in grouped.items()
    }


def _systems(name: str, results: Sequence[Result]) -> list[dict[str, Any]]:
    ours = results[0]
    systems = []
    for result in results:
        if result.unit != ours.unit or len(result.values) != len(ours.values):
            raise ValueError(
                f"benchmark {name}: {result.system} has {len(result.values)} values in {result.unit}, "
                f"{ours.system} {len(ours.values)} in {ours.unit}; systems of a benchmark take turns"
            )
        record = {key: value for key, value in asdict(result).items() if key != "benchmark"}
        record |= {"values": list(result.values), "median": result.median}
        if result is not ours:
            record |= {"ours_times_better": ours.times(result), "spread": _spread(ours, result)}
        systems.append(record)
    return systems


def _spread(ours: Result, other: Result) -> list[float]:
    """Smallest and largest ratio of simultaneous repetitions."""
    pairs = list(zip(ours.values, other.values, strict=True))
    ratios = [mine / its if ours.higher_is_better else its / mine for mine, its in pairs]
    return [min(ratios), max(ratios)]


def read_entries(folder: Path) -> dict[str, Entry]:
    """The entries of results.json; none where there is no such file.

    Raises:
        DataError: the file is something else.
    """
    path = folder / JSON
    if not path.exists():
        return {}
    document = load_json(path)
    if not isinstance(document, dict) or not isinstance(document.get("benchmarks"), dict):
        raise DataError(f"{path}: not a file of benchmark results (no field 'benchmarks'); remove it")
    return dict(document["benchmarks"])


def record(folder: Path, module: str, entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Put the entries of one module in the place of its former ones, keep the others, write both files.

    Returns:
        All entries, as written.
    """
    kept = {name: entry for name, entry in read_entries(folder).items() if entry.get("module") != module}
    merged = dict(sorted({**kept, **entries}.items()))
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_text(folder / JSON) as file:
        json.dump({"benchmarks": merged}, file, indent=1)
        file.write("\n")
    with atomic_text(folder / MARKDOWN) as file:
        file.write(markdown(merged))
    return merged


def markdown(entries: Mapping[str, Entry]) -> str:
    """The page: a table of ratios, then every system with its notes."""
    lines = [_HEAD, table(entries)]
    for name, entry in entries.items():
        machine = ", ".join(f"{key} {value}" for key, value in entry["machine"].items())
        repeats = len(entry["systems"][0]["values"])
        lines.append(f"\n## {name}\n\n{entry['date']}, {repeats} repetitions{_quick(entry)}. {machine}.\n")
        for system in entry["systems"]:
            notes = ", ".join(f"{key} {_figure(value)}" for key, value in system["notes"].items())
            low, high = min(system["values"]), max(system["values"])
            figures = f"{_figure(system['median'])} {system['unit']} ({_figure(low)} to {_figure(high)})"
            lines.append(f"- {system['system']}: {figures}{'; ' + notes if notes else ''}")
    return "\n".join(lines) + "\n"


def table(entries: Mapping[str, Entry]) -> str:
    """One row for every system that ours is compared with, as Markdown."""
    header = ("benchmark", "unit", "ours", "compared with", "theirs", "ratio", "spread", "command")
    rows = [row for name, entry in entries.items() for row in _rows(name, entry)]
    cells = [header, ("---", "---", "---:", "---", "---:", "---:", "---:", "---"), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells)


def _rows(name: str, entry: Entry) -> list[tuple[str, ...]]:
    ours, *others = entry["systems"]
    start = (name + _quick(entry), ours["unit"], _figure(ours["median"]))
    command = f"`{ours['command']}`"
    if not others:
        return [(*start, "–", "–", "–", "–", command)]
    return [
        (
            *start,
            other["system"],
            _figure(other["median"]),
            f"**{other['ours_times_better']:.2f}**",
            "{:.2f} to {:.2f}".format(*other["spread"]),
            command,
        )
        for other in others
    ]


def _quick(entry: Entry) -> str:
    return " (quick: figures mean nothing)" if entry.get("quick") else ""


def _figure(value: Any) -> str:
    """Three digits that count, without an exponent; words as they are."""
    if isinstance(value, float):
        digits = f"{value:.3g}"
        return f"{value:,.0f}" if "e+" in digits or abs(value) >= 1000 else digits
    return f"{value:,}" if isinstance(value, int) and abs(value) >= 10_000 else str(value)
