"""Views: which cells of the long table stand in a table of a report.

    View("By variant", ("variant",), {"f1": "F1", "em": "EM"})

A column for each checkpoint, and for its change since the first; a line for each measure and combination of
the leading dimensions, closed by n. Cells show the value with its interval.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame

MOST_CHANGES = 3
"""Checkpoints up to which changes stand in tables; those of more are in results.csv."""


@dataclass(frozen=True)
class Table:
    """Rows under a header, as they are shown; the first `lead` columns say what a row is."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str | int, ...], ...]
    caption: str = ""
    lead: int = 1


@dataclass(frozen=True)
class View:
    """A table of some cells.

    Args:
        title: over the table.
        by: the dimensions that lead a line; one with a single value is left out. Several measures lead, too.
        measures: measure to its heading, in order.
        across: the dimension whose values are columns, or `measure`.
        where: dimension to the value or values that are shown; `against` is empty, and dimensions of a
            protocol that neither lead nor are in the first entry of its cells are, too.
        percent: the measures that are shown in percent, with one decimal, as the papers print; of a protocol
            by default its shares.
        interval: show the interval in brackets.
        caption: under the table.
        most: lines that are shown; the rest is in results.csv.
    """

    title: str
    by: tuple[str, ...]
    measures: Mapping[str, str] = field(default_factory=dict)
    across: str = "checkpoint"
    where: Mapping[str, Any] = field(default_factory=dict)
    percent: Collection[str] | None = None
    interval: bool = True
    caption: str = ""
    most: int = 90

    @property
    def dimensions(self) -> tuple[str, ...]:
        """Those that tell the cells of the table apart."""
        return (*self.by, self.across)

    def in_percent(self, measure: str) -> bool:
        """Whether a measure is shown in percent."""
        return measure in (self.percent or ())


def cells_of(frame: DataFrame, where: Mapping[str, Any]) -> DataFrame:
    """The rows at the given places; a dimension has one value, or one of several."""
    for name, wanted in where.items():
        several = isinstance(wanted, (list, tuple, set, frozenset))
        frame = frame[frame[name].isin(wanted) if several else frame[name] == wanted]
    return frame


def make_table(view: View, frame: DataFrame) -> Table:
    """The view as a table; without rows where there are no such cells.

    Raises:
        ValueError: several numbers in one place, as where a view names too few dimensions.
    """
    order = list(view.measures)
    frame = cells_of(frame, {**view.where, "measure": order})
    if "against" not in view.where:
        frame = _with_changes(frame, view.across)
    frame = frame.sort_values("measure", key=lambda names: names.map(order.index), kind="stable")
    by = [name for name in view.by if frame[name].nunique() > 1]
    if view.across != "measure" and (frame["measure"].nunique() > 1 or not by):
        by = ["measure", *by]
    by = by or list(view.by[:1])
    headings = {
        name: f"{heading} (%)" if view.in_percent(name) and heading[-1:] != "%" else heading
        for name, heading in view.measures.items()
    }
    columns = list(dict.fromkeys(frame[view.across]))
    lines: dict[tuple[Any, ...], dict[Any, dict[str, Any]]] = {}
    for row in frame.to_dict("records"):
        line = lines.setdefault(tuple(row[name] for name in by), {})
        if line.setdefault(row[view.across], row) is not row:
            raise ValueError(f"{view.title}: two numbers for {row[view.across]!r} at {by}")
    rows = []
    for place, line in list(lines.items())[: view.most]:
        cells = [shown(line[column], view) if column in line else "" for column in columns]
        numbers = [row for row in line.values() if not row["against"]]
        counts = [row["n"] for row in numbers or line.values()]
        n = int(min(counts)) if min(counts) == max(counts) else f"{min(counts)}–{max(counts)}"
        lead = (
            headings[part] if name == "measure" else str(part) for name, part in zip(by, place, strict=True)
        )
        rows.append((*(part or "all" for part in lead), *cells, n))
    left_out = len(lines) - len(rows)
    more = f"{left_out} more lines are in results.csv." if left_out else ""
    names = headings if view.across == "measure" else {"": "value"}
    header = (*by, *(names.get(column, str(column)) for column in columns), "n")
    return Table(view.title, header, tuple(rows), " ".join(filter(None, (view.caption, more))), len(by))


def _with_changes(frame: DataFrame, across: str) -> DataFrame:
    """The numbers themselves, and, where checkpoints are columns, their changes as columns after them."""
    numbers = frame[frame["against"] == ""]
    checkpoints = list(dict.fromkeys(numbers["checkpoint"]))
    if across != "checkpoint" or not 2 <= len(checkpoints) <= MOST_CHANGES:
        return numbers
    import pandas as pd

    changes = frame[frame["against"] == checkpoints[0]]
    named = changes.assign(checkpoint=changes["checkpoint"] + " - " + checkpoints[0])
    return pd.concat([numbers, named])


def shown(row: Mapping[str, Any], view: View) -> str:
    """A number with its interval.

    >>> shown({"measure": "em", "value": 0.5, "low": 0.25, "high": 0.75}, View("", (), {}, percent={"em"}))
    '50.0 [25.0, 75.0]'
    """
    percent = view.in_percent(row["measure"])
    text = number(row["value"], percent=percent)
    if not view.interval or not math.isfinite(row["low"]):
        return text
    low, high = (number(row[end], percent=percent) for end in ("low", "high"))
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
    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in (table.header, *table.rows)]
    rule = ["---"] * table.lead + ["---:"] * (len(table.header) - table.lead)
    return "\n".join("| " + " | ".join(row) + " |" for row in [cells[0], rule, *cells[1:]])


def print_table(table: Table) -> None:
    """The table on standard output, 80 columns wide where that is no terminal."""
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    console = Console(highlight=False)
    grid = RichTable(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for i, name in enumerate(table.header):
        justify: Any = "left" if i < table.lead else "right"
        grid.add_column(Text(name, style="italic"), justify=justify, overflow="fold")
    for row in table.rows:
        grid.add_row(*(Text(str(cell)) for cell in row))
    console.print(Text(table.title, style="bold"))
    console.print(grid)
    console.print()
