"""Views: which cells of the long table stand in a table of a report.

    View("By variant, in percent", ("variant",), {"f1": "F1", "em": "EM"}, percent=True)

A column for each checkpoint; a line for each measure and combination of the leading dimensions, closed by n.
Cells show the value with its interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame

Cell = str | int | float | None


@dataclass(frozen=True)
class Table:
    """Rows under a header, as they are shown; the first `lead` columns say what a row is."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    lead: int = 1

    @property
    def headed(self) -> bool:
        """Whether lines share their first cell, which then stands over them."""
        return self.lead > 1 and len({row[0] for row in self.rows}) < len(self.rows)


@dataclass(frozen=True)
class View:
    """A table of some cells.

    Args:
        title: over the table.
        by: the dimensions that lead a line; one with a single value is left out. Several measures lead, too.
        measures: measure to its heading, in order.
        across: the dimension whose values are columns, or `measure`.
        where: dimension to the value or values that are shown.
        percent: show shares in percent, with one decimal, as the papers print.
        interval: show the interval in brackets.
        caption: under the table.
        most: lines that are shown; the rest is in results.csv.
    """

    title: str
    by: tuple[str, ...]
    measures: Mapping[str, str]
    across: str = "checkpoint"
    where: Mapping[str, Any] = field(default_factory=dict)
    percent: bool = False
    interval: bool = True
    caption: str = ""
    most: int = 90


def cells_of(frame: DataFrame, where: Mapping[str, Any]) -> DataFrame:
    """The rows at the given places; a dimension has one value, or one of several."""
    for name, wanted in where.items():
        several = isinstance(wanted, (list, tuple, set))
        frame = frame[frame[name].isin(wanted) if several else frame[name] == wanted]
    return frame


def make_table(view: View, frame: DataFrame) -> Table:
    """The view as a table; without rows where there are no such cells."""
    order = list(view.measures)
    frame = cells_of(frame, {**view.where, "measure": order})
    frame = frame.sort_values("measure", key=lambda names: names.map(order.index), kind="stable")
    by = [name for name in view.by if frame[name].nunique() > 1]
    if view.across != "measure" and (frame["measure"].nunique() > 1 or not by):
        by = ["measure", *by]
    by = by or list(view.by[:1])
    frame = frame.assign(measure=frame["measure"].map(view.measures))
    columns = list(dict.fromkeys(frame[view.across]))
    lines: dict[tuple[Any, ...], dict[Any, dict[str, Any]]] = {}
    for row in frame.to_dict("records"):
        lines.setdefault(tuple(row[name] for name in by), {}).setdefault(row[view.across], row)
    rows = []
    for place, found in list(lines.items())[: view.most]:
        cells = [shown(found[column], view) if column in found else "" for column in columns]
        counts = [row["n"] for row in found.values()]
        n = int(min(counts)) if min(counts) == max(counts) else f"{min(counts)}–{max(counts)}"
        rows.append((*(str(part) if part != "" else "all" for part in place), *cells, n))
    left_out = len(lines) - len(rows)
    more = f"{left_out} more lines are in results.csv." if left_out else ""
    header = (*by, *(str(column) if column != "" else "value" for column in columns), "n")
    return Table(view.title, header, tuple(rows), " ".join(filter(None, (view.caption, more))), len(by))


def shown(row: Mapping[str, Any], view: View) -> str:
    """A number with its interval.

    >>> shown({"value": 0.5, "low": 0.25, "high": 0.75}, View("", (), {}, percent=True))
    '50.0 [25.0, 75.0]'
    """
    text = number(row["value"], percent=view.percent)
    if not view.interval or not math.isfinite(row["low"]):
        return text
    low, high = (number(row[end], percent=view.percent) for end in ("low", "high"))
    return f"{text} [{low}, {high}]"


def number(value: float, *, percent: bool = False) -> str:
    """Three digits, or percent with one decimal; a whole number as it is; of a small fraction two digits.

    >>> number(0.12345), number(0.12345, percent=True), number(7.0), number(0.00012), number(math.nan)
    ('0.123', '12.3', '7', '0.00012', '–')
    >>> number(1.2345), number(-12.345), number(1234.5)
    ('1.23', '-12.3', '1234')
    """
    if not math.isfinite(value):
        return "–"
    if percent:
        return f"{100 * value:.1f}"
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    if abs(value) < 0.001:
        return f"{value:.2g}"
    decimals = sum(abs(value) < limit for limit in (1, 10, 100))
    return f"{value:.{decimals}f}"


def markdown_table(table: Table) -> str:
    """The table in Markdown, without its title; columns of numbers are right-aligned."""
    cells = [[format_cell(cell).replace("|", "\\|") for cell in row] for row in (table.header, *table.rows)]
    rule = ["---"] * table.lead + ["---:"] * (len(table.header) - table.lead)
    return "\n".join("| " + " | ".join(row) + " |" for row in [cells[0], rule, *cells[1:]])


def print_table(table: Table) -> None:
    """The table on standard output, 80 columns wide where that is no terminal.

    Lines that share their first cell stand under it. Columns that find no room follow below, each time behind
    the leading ones and before n.
    """
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    console, gap = Console(highlight=False), 2
    header = list(table.header)
    rows = [[format_cell(cell) for cell in row] for row in table.rows]
    lead = table.lead
    if table.headed:
        below: list[list[str]] = []
        for at, row in enumerate(rows):
            if not at or row[0] != rows[at - 1][0]:
                below.append([row[0], *[""] * (len(row) - 2)])
            below.append([f"  {row[1]}", *row[2:]])
        header, rows, lead = ["", *header[2:]], below, lead - 1
    widths = [max(cell_len(row[i]) for row in rows) for i in range(len(header))]
    widths = [max(width, min(cell_len(name), 12)) for width, name in zip(widths, header, strict=True)]
    first, last = list(range(lead)), [len(header) - 1] * (header[-1] == "n")
    room = console.width - sum(widths[i] + gap for i in (*first, *last))
    blocks: list[list[int]] = [[]]
    for i in range(lead, len(header) - len(last)):
        if blocks[-1] and sum(widths[j] + gap for j in (*blocks[-1], i)) > room:
            blocks.append([])
        blocks[-1].append(i)
    console.print(Text(table.title, style="bold"))
    for block in blocks:
        grid = RichTable(box=None, padding=(0, gap, 0, 0), pad_edge=False)
        for i in (*first, *block, *last):
            name = Text(header[i], style="italic")
            grid.add_column(name, justify="left" if i < lead else "right", overflow="fold")
        for row in rows:
            grid.add_row(*(Text(row[i]) for i in (*first, *block, *last)))
        console.print(grid)
        console.print()


def format_cell(value: Cell) -> str:
    """Text as it is, numbers with three digits, a dash where there is none."""
    if value is None or isinstance(value, float):
        return number(math.nan if value is None else value)
    return str(value)
