"""The tables of the HTML page: cells that know how they are shown, and which examples stand behind them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from evaluation.page.folders import ExampleRows, FoundReport, FoundRun
from evaluation.results import ENDS
from evaluation.views import Cell, Table, format_cell

NUMBER = re.compile(r"[+\-−±]?\d[\d.,]*(e[+-]?\d+)?[^A-Za-z]*")
MOST = 3000
"""Lines of a table of all numbers; the rest is in results.csv."""


@dataclass(frozen=True)
class Shown:
    """A cell: its text, whether it is a number, what the pointer shows, and the rows behind it.

    Args:
        goes: the address of the rows, with `#`; empty where there are none.
        finds: what is put into the search box over them.
        folds: whether a long text shows its beginning only, and the rest on a click.
    """

    text: str
    number: bool = False
    full: str = ""
    goes: str = ""
    finds: str = ""
    folds: bool = False


@dataclass(frozen=True)
class ShownTable:
    """A table of the page."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Shown]]
    caption: str = ""

    @property
    def right(self) -> list[bool]:
        """Which columns are numbers, as far as there is something."""
        columns = [[row[i] for row in self.rows] for i in range(len(self.header))]
        return [
            any(cell.number for cell in column)
            and all(cell.number or cell.text in ("", "–") for cell in column)
            for column in columns
        ]


def pairs_table(title: str, values: Mapping[str, Any]) -> ShownTable:
    """Nested settings as two columns."""
    return ShownTable(title, ("", ""), [(Shown(key), Shown(text)) for key, text in flat(values) if key])


def flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Nested keys joined by dots to their values as text; a list of plain values is one value.

    >>> list(flat({"a": {"b": 1, "c": [1, 2]}, "d": None, "e": [{"f": True}]}))
    [('a.b', '1'), ('a.c', '1, 2'), ('d', '–'), ('e[0].f', 'true')]
    """
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from flat(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        for i, item in enumerate(value):
            yield from flat(item, f"{name}[{i}]")
    else:
        texts = [
            "–"
            if item is None or item in ("", {})
            else str(item).lower()
            if item in (True, False)
            else str(item)
            for item in (value if isinstance(value, list) else [value])
        ]
        yield name, ", ".join(texts) or "–"


def long_table(title: str, sources: Sequence[tuple[FoundReport, str, ExampleRows]]) -> ShownTable:
    """All numbers of reports of one protocol: a line for each measure and cell, a column for each checkpoint
    of each report. With several reports, only lines that at least two of them have.

    Args:
        title: of the table.
        sources: reports, each with the id of its section and its rows.
    """
    frames = [
        found.frame.assign(_at=at, _column=found.frame.get("checkpoint", ""))
        for at, (found, _, _) in enumerate(sources)
    ]
    frame = pd.concat(frames).astype({"value": float})
    by = [name for name in frame if name not in {*ENDS, "checkpoint", "_at", "_column"}]
    frame[by] = frame[by].fillna("").astype(str)
    columns = list(dict.fromkeys(zip(frame["_at"], frame["_column"], strict=True)))
    lines: dict[tuple[str, ...], dict[Any, dict[str, Any]]] = {}
    for row in frame.to_dict("records"):
        place = tuple(row[name] for name in by)
        lines.setdefault(place, {}).setdefault((row["_at"], row["_column"]), row)
    if len(sources) > 1:
        lines = {place: its for place, its in lines.items() if len({at for at, _ in its}) > 1}
    shown = []
    for place, its in list(lines.items())[:MOST]:
        cells = [Shown("")] * len(columns)
        for i, column in enumerate(columns):
            if column in its:
                row, (_, section, rows) = its[column], sources[column[0]]
                low, high = row["low"], row["high"]
                interval = "" if low is None or low != low else f", 95 % interval {low} to {high}"
                full = f"{'–' if row['value'] != row['value'] else row['value']}{interval}, n = {row['n']}"
                finds = rows.search(row) if rows.rows else ""
                cells[i] = Shown(
                    format_cell(row["value"]), True, full, f"#{section}-rows" if finds else "", finds
                )
        shown.append((*map(Shown, place), *cells))
    names = [
        ": ".join(filter(None, (sources[at][0].label if len(sources) > 1 else "", str(name)))) or "value"
        for at, name in columns
    ]
    rest = len(lines) - len(shown)
    return ShownTable(title, (*by, *names), shown, f"{rest} more lines are in results.csv." if rest else "")


def metrics_table(title: str, runs: Sequence[FoundRun]) -> ShownTable:
    """The last metrics of runs side by side, in full precision for the pointer."""
    rows = [
        (
            Shown(key),
            *(
                Shown(
                    format_cell(run.metrics[key]),
                    True,
                    "–" if run.metrics[key] is None else str(run.metrics[key]),
                )
                if key in run.metrics
                else Shown("")
                for run in runs
            ),
        )
        for key in dict.fromkeys(key for run in runs for key in run.metrics)
    ]
    return ShownTable(title, ("metric", *(run.label if len(runs) > 1 else "value" for run in runs)), rows)


def settings_table(runs: Sequence[FoundRun]) -> ShownTable | None:
    """Where the runs' configurations differ; None where they do not."""
    flats = [dict(flat(run.config)) for run in runs]
    lines = [
        (key, *(values.get(key, "–") for values in flats))
        for key in dict.fromkeys(key for values in flats for key in values)
    ]
    rows = [tuple(map(Shown, line)) for line in lines if len(set(line[1:])) > 1]
    return ShownTable("Settings that differ", ("setting", *(r.label for r in runs)), rows) if rows else None


def protocol_table(table: Table, section: str, rows: ExampleRows) -> ShownTable:
    """A table of report.md; its lines lead to the examples that their leading cells name."""
    shown = []
    for row in table.rows:
        cells = [Shown(format_cell(cell), is_number(cell)) for cell in row]
        finds = rows.search(dict(zip(table.header, row, strict=True))) if rows.rows else ""
        if finds:
            first = cells[0]
            cells[0] = Shown(first.text, first.number, "the rows behind this line", f"#{section}-rows", finds)
        shown.append(cells)
    return ShownTable(table.title, table.header, shown, table.caption)


def is_number(cell: Cell) -> bool:
    """Whether a cell reads as a number, also with its interval or a mark behind it.

    >>> [is_number(cell) for cell in (3, "70.8", "−0.5 ± 0.1", "12.0 [3.0, 20.1]", "ts_r", "2 rows")]
    [True, True, True, True, False, False]
    """
    return NUMBER.fullmatch(cell) is not None if isinstance(cell, str) else cell is not None


def example_table(rows: ExampleRows) -> ShownTable:
    """The rows of examples.jsonl as a table; what is nested stays JSON."""

    def cell(value: Any) -> Shown:
        if isinstance(value, str):
            return Shown(value, folds=True)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return Shown(format_cell(value), True, str(value) if math.isfinite(value) else "")
        return Shown("–" if value is None else json.dumps(value, ensure_ascii=False), folds=True)

    lines = [[cell(row[name]) if name in row else Shown("") for name in rows.columns] for row in rows.rows]
    return ShownTable("", rows.columns, lines)
