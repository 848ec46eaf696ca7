"""Views: which cells of the long table stand in a table of a report.

    View("By variant, in percent", ("checkpoint", "variant"), {"f1": "F1", "em": "EM"}, percent=True)

A line for each combination of the leading dimensions, a column for each measure (of each value of `across`).
Cells show the value with its interval; n closes the line.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame

Cell = str | int | float | None


@dataclass(frozen=True)
class Table:
    """Rows under a header, as they are shown."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""


@dataclass(frozen=True)
class View:
    """A table of some cells.

    Args:
        title: over the table.
        by: the dimensions that lead a line; one with a single value is left out, unless none would be left.
        measures: measure to heading of its column, in order.
        across: a dimension whose values stand side by side, for each measure.
        where: dimension to the value or values that are shown.
        percent: show shares in percent, with one decimal, as the papers print.
        interval: show the interval in brackets.
        caption: under the table.
        most: lines that are shown; the rest is in results.csv.
    """

    title: str
    by: tuple[str, ...]
    measures: Mapping[str, str]
    across: str = ""
    where: Mapping[str, Any] = field(default_factory=dict)
    percent: bool = False
    interval: bool = True
    caption: str = ""
    most: int = 60


def cells_of(frame: DataFrame, where: Mapping[str, Any]) -> DataFrame:
    """The rows at the given places; a dimension has one value, or one of several."""
    for name, wanted in where.items():
        several = isinstance(wanted, (list, tuple, set))
        frame = frame[frame[name].isin(wanted) if several else frame[name] == wanted]
    return frame


def make_table(view: View, frame: DataFrame) -> Table:
    """The view as a table; without rows where there are no such cells."""
    frame = cells_of(frame, {**view.where, "measure": list(view.measures)})
    by = [name for name in view.by if frame[name].nunique() > 1] or list(view.by[:1])
    groups = list(dict.fromkeys(frame[view.across])) if view.across else [""]
    lines: dict[tuple[Any, ...], dict[Any, dict[str, Any]]] = {}
    for row in frame.to_dict("records"):
        column = row[view.across] if view.across else "", row["measure"]
        lines.setdefault(tuple(row[name] for name in by), {}).setdefault(column, row)
    header, rows = [*by], []
    for group, heading in product(groups, view.measures.values()):
        named = group == "" or len(view.measures) > 1
        header.append(" ".join(filter(None, (str(group), heading if named else ""))))
    for place, found in list(lines.items())[: view.most]:
        cells = [
            shown(found[column], view) if column in found else "" for column in product(groups, view.measures)
        ]
        counts = [row["n"] for row in found.values()]
        n = int(min(counts)) if min(counts) == max(counts) else f"{min(counts)}–{max(counts)}"
        rows.append((*(str(part) if part != "" else "all" for part in place), *cells, n))
    left_out = len(lines) - len(rows)
    more = f"{left_out} more lines are in results.csv." if left_out else ""
    return Table(view.title, (*header, "n"), tuple(rows), " ".join(filter(None, (view.caption, more))))


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
    """Three decimals, or percent with one; a whole number as it is; of a small fraction two digits.

    >>> number(0.12345), number(0.12345, percent=True), number(7.0), number(0.00012), number(math.nan)
    ('0.123', '12.3', '7', '0.00012', '–')
    """
    if not math.isfinite(value):
        return "–"
    if percent:
        return f"{100 * value:.1f}"
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.3f}" if abs(value) >= 0.001 else f"{value:.2g}"


def markdown_table(table: Table) -> str:
    """The table in Markdown, without its title; columns of numbers are right-aligned."""
    cells = [[format_cell(cell).replace("|", "\\|") for cell in row] for row in (table.header, *table.rows)]
    rule = ["---"] + ["---:"] * (len(table.header) - 1)
    return "\n".join("| " + " | ".join(row) + " |" for row in [cells[0], rule, *cells[1:]])


def print_table(table: Table) -> None:
    """The table on standard output, never narrower than its content where the output is not a terminal."""
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    grid = RichTable()
    for i, name in enumerate(table.header):
        grid.add_column(Text(name), justify="right" if i else "left", no_wrap=True)
    for row in table.rows:
        grid.add_row(*(Text(format_cell(cell)) for cell in row))
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(Text(table.title, style="italic"))  # as a title of RichTable it would wrap
    console.print(grid)


def format_cell(value: Cell) -> str:
    """Text as it is, fractions with four decimals, a dash where there is no number."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
