"""What runs and reports left in folders, read and checked, for pages that show several of them."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from evaluation.old_tables import Cell, Table
from storage.errors import DataError
from storage.json_files import field as checked
from storage.json_files import load_json

REPORT = "report.json"
RUN = ("config.yaml", "environment.json")
PICTURES = {".png": "image/png", ".svg": "image/svg+xml"}

OLDER = "An older version wrote this report: its tables are in report.md."

Curves = Mapping[str, Sequence[tuple[float, float]]]
"""Metric key to its points (step, value)."""


@dataclass(frozen=True)
class FoundReport:
    """A folder that `python -m evaluation` wrote.

    Args:
        label: what it is called beside others.
        metrics: flat keys to numbers, None where there is none.
        about: what it was made from, without what only repeats the page.
        figures: file names that stand there.
    """

    label: str
    folder: Path
    title: str
    metrics: Mapping[str, float | int | None]
    about: Mapping[str, Any]
    notes: tuple[str, ...]
    tables: tuple[Table, ...]
    figures: tuple[str, ...]

    @property
    def protocol(self) -> str:
        """What may be compared with it: reports of the same protocol."""
        return str(self.about.get("protocol") or self.title)


@dataclass(frozen=True)
class FoundRun:
    """A folder that `python -m training` wrote; metrics and curves are empty while there are none."""

    label: str
    folder: Path
    config_text: str
    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    metrics: Mapping[str, float | int | None] = field(default_factory=dict)
    curves: Curves = field(default_factory=dict)


Found = FoundReport | FoundRun


def find_results(arguments: Sequence[str]) -> list[Found]:
    """All runs and reports in the folders of `[NAME=]FOLDER` arguments, or anywhere below them, each once.

    Raises:
        ValueError: a folder that is not there or holds nothing of ours, a damaged file.
    """
    named: dict[Path, tuple[str, Path]] = {}
    for argument in arguments:
        name, root = _name_and_path(argument)
        folders = list(_folders(root))
        if not folders:
            raise ValueError(
                f"{root}: holds neither a report ({REPORT}) nor a run ({' and '.join(RUN)}), nor do the "
                "folders below; name what --output of an evaluation named, or a runs/NAME/VERSION"
            )
        for folder in folders:
            below = folder.relative_to(root).as_posix()
            told = name if below == "." else f"{name}/{below}" if name else ""
            named.setdefault(folder.resolve(), (told, folder))
    labels = short_names([folder for _, folder in named.values()])
    return [
        _read(told or label, folder) for (told, folder), label in zip(named.values(), labels, strict=True)
    ]


def short_names(folders: Sequence[Path]) -> list[str]:
    """The last parts of each path, as few as tell it from the others; of a run at least two.

    >>> short_names([Path("a/bias"), Path("a/shift"), Path("b/shift")])
    ['bias', 'a/shift', 'b/shift']
    """
    parts = [folder.absolute().parts for folder in folders]
    least = [1 + (folder / RUN[1]).exists() for folder in folders]
    most = max(map(len, parts), default=0)
    for size in range(1, most + 1):
        names = ["/".join(p[-n:]) for p, n in zip(parts, least, strict=True)]
        least = [
            n if names.count(name) == 1 else max(n, size + 1) for name, n in zip(names, least, strict=True)
        ]
    return ["/".join(p[-n:]).replace("//", "/") for p, n in zip(parts, least, strict=True)]


def _name_and_path(argument: str) -> tuple[str, Path]:
    """`NAME=FOLDER` apart; a folder that exists is a folder, whatever its name holds."""
    path = Path(argument)
    name, equals, rest = argument.partition("=")
    if not path.exists() and equals and name and rest and "/" not in name:
        path = Path(rest)
    else:
        name = ""
    if not path.exists():
        raise ValueError(f"{path}: no such folder")
    if not path.is_dir():
        raise ValueError(f"{path}: is a file; name the folder of a run or a report")
    return name, path


def _folders(root: Path) -> Iterator[Path]:
    """`root` and what is below it, where it is a report or a run; hidden folders are left out."""
    for place, below, files in os.walk(root):
        below[:] = sorted(name for name in below if not name.startswith(".") and name != "checkpoints")
        if REPORT in files or set(RUN) <= set(files):
            yield Path(place)


def _read(label: str, folder: Path) -> Found:
    return read_report(label, folder) if (folder / REPORT).exists() else read_run(label, folder)


def read_report(label: str, folder: Path) -> FoundReport:
    """The report in a folder, checked. ValueError names the file, and the field that is wrong."""
    path = folder / REPORT
    content = load_json(path)
    about = dict(checked(content, "about", dict, f"{path}: no report of `python -m evaluation`"))
    files = [str(name) for name in about.pop("files", None) or ()]
    page = about.pop("page", {"notes": [OLDER]})
    where = f"{path}, about.page"
    tables = [_table(table, f"{where}.tables[{i}]") for i, table in enumerate(_list(page, "tables", where))]
    pictures = [str(name) for name in _list(page, "figures", where) or files]
    return FoundReport(
        label=label,
        folder=folder,
        title=str(page.get("title") or about.get("protocol") or label),
        metrics={key: _number(value, key, path) for key, value in content.items() if key != "about"},
        about=about,
        notes=tuple(str(note) for note in _list(page, "notes", where)),
        tables=tuple(tables),
        # A name with a folder in it is not of our making, and could lead anywhere.
        figures=tuple(n for n in pictures if Path(n).name == n and Path(n).suffix in PICTURES),
    )


def _list(record: Any, name: str, where: str) -> list[Any]:
    if not isinstance(record, dict):
        raise DataError(f"{where}: must be an object")
    found: list[Any] = checked(record, name, list, where) if name in record else []
    return found


def _table(record: Any, where: str) -> Table:
    header = tuple(str(name) for name in checked(record, "header", list, where))
    rows = []
    for i, row in enumerate(checked(record, "rows", list, where)):
        if not isinstance(row, list) or len(row) != len(header):
            raise DataError(f"{where}: row {i} must be a list of {len(header)} cells, one for each column")
        rows.append(tuple(_cell(cell) for cell in row))
    return Table(str(record.get("title", "")), header, tuple(rows), str(record.get("caption", "")))


def _cell(value: Any) -> Cell:
    if value is None:
        return math.nan
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)


def _number(value: Any, key: str, path: Path) -> float | int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise DataError(f"{path}: the metric {key!r} must be a number or null, found {str(value)[:60]!r}")
    return value


def read_run(label: str, folder: Path) -> FoundRun:
    """The run in a folder, checked. ValueError names the file."""
    path = folder / RUN[0]
    try:
        text = path.read_text(encoding="utf-8")
        config = yaml.safe_load(text) or {}
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    environment = load_json(folder / RUN[1])
    for name, value in zip(RUN, (config, environment), strict=True):
        if not isinstance(value, dict):
            raise DataError(f"{folder / name}: must hold keys and values")
    final, curves = folder / "metrics.json", folder / "metrics.csv"
    metrics = load_json(final) if final.exists() else {}
    if not isinstance(metrics, dict):
        raise DataError(f"{final}: must be an object of metrics")
    return FoundRun(
        label=label,
        folder=folder,
        config_text=text,
        config=config,
        environment=environment,
        metrics={key: _number(value, key, final) for key, value in metrics.items()},
        curves=read_curves(curves) if curves.exists() else {},
    )


def read_curves(path: Path) -> dict[str, list[tuple[float, float]]]:
    """The columns of a metrics.csv over its column `step`; empty cells and NaN are left out.

    Raises:
        DataError: no such column, a cell that is no number.
    """
    found: dict[str, list[tuple[float, float]]] = {}
    try:
        with open(path, encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file, restkey="")
            if rows.fieldnames is not None and "step" not in rows.fieldnames:
                raise DataError(f"{path}: has no column 'step'")
            for row in rows:
                at = float(row.pop("step", None) or "nan")
                for key, cell in row.items():
                    if key and key != "epoch" and cell:
                        value = float(cell)
                        if math.isfinite(at) and math.isfinite(value):
                            found.setdefault(key, []).append((at, value))
    except (ValueError, csv.Error) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}, line {rows.line_num}: {error}") from None
    return found
