"""The tables of the HTML page: cells that know how they are shown, and which examples stand behind them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evaluation.old_tables import Cell, Table, format_cell
from evaluation.page.example_rows import ExampleRows
from evaluation.page.found_results import Found, FoundRun
from evaluation.page.side_by_side import Column, Comparison, columns, flat

NUMBER = re.compile(r"[+\-−±]?\d[\d.,]*(e[+-]?\d+)?[^A-Za-z]*")


@dataclass(frozen=True)
class Shown:
    """A cell: its text, whether it is a number, what the pointer shows, and the rows behind it.

    Args:
        folds: whether a long text shows its beginning only, and the rest on a click.
        goes: the address of the rows, with `#`; empty where there are none.
        finds: what is put into the search box over them.
    """

    text: str
    number: bool = False
    full: str = ""
    goes: str = ""
    finds: str = ""
    folds: bool = False


@dataclass(frozen=True)
class ShownTable:
    """A table of the page; `right` says which columns are numbers."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Shown, ...], ...]
    right: tuple[bool, ...]
    caption: str = ""


def pairs_table(title: str, values: Mapping[str, Any]) -> ShownTable:
    """Nested settings as two columns."""
    rows = tuple((Shown(key), Shown(text)) for key, text in flat(values) if key)
    return ShownTable(title, ("", ""), rows, (False, False))


def numbers_table(found: Found, name: str, rows: ExampleRows) -> ShownTable:
    """All metrics of a folder: a row for each key, a column for each checkpoint."""
    every = columns(found)
    keys = list(dict.fromkeys(key for column in every for key in column.keys))
    header = ("metric", *(column.name or "value" for column in every))
    lines = [(Shown(key), *(metric_cell(column, key, name, rows) for column in every)) for key in keys]
    return ShownTable("All numbers", header, tuple(lines), (False, *[True] * len(every)))


def metric_cell(column: Column, key: str, name: str, rows: ExampleRows) -> Shown:
    """One number, with its full precision and the way to the rows behind it."""
    if key not in column.keys:
        return Shown("", number=True)
    whole, value = column.keys[key], column[key]
    goes, finds = way(whole.split("/"), name, rows)
    return Shown(short(value), True, f"{whole} = {'–' if value is None else value}", goes, finds)


def way(parts: Iterable[str], name: str, rows: ExampleRows) -> tuple[str, str]:
    """The address of a report's rows and the search for those that these parts name."""
    if not rows.rows:
        return "", ""
    found = rows.finding(parts)
    return f"#{name}-rows", " ".join(f'{field}="{value}"' for field, value in found.items())


def short(value: float | int | None) -> str:
    """Four decimals, or three digits of what would show none of them.

    >>> short(0.25), short(12), short(None), short(0.00001234)
    ('0.2500', '12', '–', '1.23e-05')
    """
    if isinstance(value, float) and 0 < abs(value) < 0.001:
        return f"{value:.2e}"
    return "–" if value is None else format_cell(value)


def compared(comparison: Comparison, sections: Mapping[int, tuple[str, ExampleRows]]) -> ShownTable:
    """The columns that share metrics, one beside the other.

    Args:
        sections: id() of what a column is from to its section's name and rows.
    """
    rows = []
    for key in comparison.keys:
        cells = [metric_cell(column, key, *sections[id(column.found)]) for column in comparison.columns]
        rows.append((Shown(key), *cells))
    header = ("metric", *(column.label for column in comparison.columns))
    caption = f"{comparison.others} more stand in one column only: below." if comparison.others else ""
    return ShownTable(
        comparison.title, header, tuple(rows), (False, *[True] * len(comparison.columns)), caption
    )


def settings_table(runs: Sequence[FoundRun], rows: Sequence[tuple[str, ...]]) -> ShownTable | None:
    """Where the runs' configurations differ; None where they do not."""
    if not rows:
        return None
    header = ("setting", *(run.label for run in runs))
    cells = tuple(tuple(Shown(text) for text in row) for row in rows)
    return ShownTable("Settings that differ", header, cells, (False,) * len(header))


def protocol_table(table: Table, name: str, rows: ExampleRows) -> ShownTable:
    """A table of a protocol, as report.md shows it; its rows lead to the examples that they name."""
    right = tuple(
        any(is_number(row[i]) for row in table.rows)
        and all(is_number(row[i]) or row[i] in ("–", "") for row in table.rows)
        for i in range(len(table.header))
    )
    shown = []
    for row in table.rows:
        goes, finds = way(words_of(row), name, rows)
        cells = [Shown(format_cell(cell), right[i], full_precision(cell)) for i, cell in enumerate(row)]
        if finds and cells:
            cells[0] = Shown(cells[0].text, cells[0].number, "the rows behind this line", goes, finds)
        shown.append(tuple(cells))
    return ShownTable(table.title, table.header, tuple(shown), right, table.caption)


def words_of(row: Sequence[Cell]) -> list[str]:
    """What a table row names, in the words of metric keys.

    >>> words_of(("adversarial: no question", "ts_r", 0.5))
    ['adversarial', 'no_question', 'ts_r']
    """
    texts = [cell for cell in row if isinstance(cell, str)]
    return [part.replace(" ", "_") for text in texts for part in text.split(": ")]


def is_number(cell: Cell) -> bool:
    """Whether a cell reads as a number, also with its spread or a mark behind it.

    >>> [is_number(cell) for cell in (3, "70.8", "−0.5 ± 0.1", "12.0 (3)", "1.2e-05**", "ts_r", "2 rows")]
    [True, True, True, True, True, False, False]
    """
    return not isinstance(cell, str) or NUMBER.fullmatch(cell) is not None


def full_precision(cell: Cell) -> str:
    return str(cell) if isinstance(cell, float) and math.isfinite(cell) else ""


def example_table(rows: ExampleRows) -> ShownTable:
    """The rows of examples.jsonl as a table; what is nested stays JSON."""
    lines = tuple(
        tuple(example_cell(row[name]) if name in row else Shown("") for name in rows.columns)
        for row in rows.rows
    )
    right = tuple(all(line[i].number or not line[i].text for line in lines) for i in range(len(rows.columns)))
    return ShownTable("", rows.columns, lines, right)


def example_cell(value: Any) -> Shown:
    """A value of a row as a cell."""
    if isinstance(value, str):
        return Shown(value, folds=True)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return Shown(short(value), True, str(value))
    return Shown("–" if value is None else json.dumps(value, ensure_ascii=False), folds=True)
