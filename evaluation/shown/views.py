"""Views: the cells of the long table in a table of a report.

    View("By variant", ("variant",), {"f1": "F1", "em": "EM"})

A column for each checkpoint, and for its change since the first; a line for each measure and
combination of the leading dimensions, ending in n. Cells show the value with its interval.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Table:
    """Displayed rows under a header; the first `lead` columns identify a row."""

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
        by: the dimensions that begin a line. One with a single value is left out, unless it splits
            the whole. Several measures also begin a line.
        measures: measure to its heading, in order.
        across: the dimension whose values are columns, or `measure`.
        where: dimension to the displayed value or values, or None: any. By default, `against` is
            empty, as are other dimensions that neither begin a line nor are in the first entry of
            the protocol's cells.
        percent: the measures in percent, with one decimal, as in the papers; default: the shares.
        interval: show the interval in brackets.
        caption: text under the table.
        most: number of displayed lines; the rest is in results.csv.
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


def cells_of(frame: DataFrame, where: Mapping[str, Any]) -> DataFrame:
    """Select the rows at the given places; a dimension has one value, one of several, or any
    (None).
    """
    for name, values in where.items():
        if values is None:
            frame = frame[frame[name] != ""]
        else:
            frame = frame[frame[name].isin([values] if isinstance(values, str) else values)]
    return frame


def make_table(view: View, frame: DataFrame) -> Table:
    """Make a table of the view, without rows if there are no such cells. ValueError if several
    numbers are in one place: the view names too few dimensions.
    """
    import pandas as pd

    order, percent = list(view.measures), view.percent or ()
    frame = cells_of(frame, {**view.where, "measure": order})
    if {*frame["measure"]} == {"failed"}:  # of a set without the view's own measures
        frame = frame[:0]
    if "against" not in view.where:
        every, frame = frame, frame[frame["against"] == ""]
        names = frame["checkpoint"].unique()
        changes = every[every["against"].isin(names)]
        # With more checkpoints, changes are only in results.csv.
        if view.across == "checkpoint" and 0 < changes["checkpoint"].nunique() <= 2:
            both = changes["checkpoint"] + " - " + changes["against"]
            frame = pd.concat([frame, changes.assign(checkpoint=both)])
    frame = frame.sort_values("measure", key=lambda names: names.map(order.index), kind="stable")
    by = [name for name in view.by if view.where.get(name, "") is None or frame[name].nunique() > 1]
    if view.across != "measure" and (frame["measure"].nunique() > 1 or not by):
        by = ["measure", *by]
    by = by or list(view.by[:1])
    if frame.duplicated([*by, view.across]).any():
        raise ValueError(
            f"{view.title}: two numbers in one place; these tell too little apart: {by}"
        )
    cells = [
        shown(row, percent=row["measure"] in percent, interval=view.interval)
        for row in frame.to_dict("records")
    ]
    headings = {
        name: f"{heading} (%)" if name in percent and not heading.endswith("%") else heading
        for name, heading in view.measures.items()
    }
    frame = frame.assign(shown=cells, measure=frame["measure"].map(headings))
    columns, rows = frame[view.across].unique(), list[tuple[str | int, ...]]()
    lines = list(frame.groupby(by, sort=False))
    for place, line in lines[: view.most]:
        numbers = line[line["against"] == ""]
        least, most = (numbers if len(numbers) else line)["n"].agg(["min", "max"])
        n = int(least) if least == most else f"{least}–{most}"
        cell_of = dict(zip(line[view.across], line["shown"], strict=True))
        lead = (str(part) or "all" for part in place)
        rows.append((*lead, *(cell_of.get(column, "") for column in columns), n))
    caption, header = view.caption, (*by, *map(str, columns), "n")
    if len(lines) > view.most:
        caption = f"{caption} {len(lines) - view.most} more lines are in results.csv.".strip()
    return Table(view.title, header, tuple(rows), caption, len(by))


def shown(row: Mapping[str, Any], *, percent: bool = False, interval: bool = True) -> str:
    """Format a number with its interval.

    >>> shown({"value": 0.5, "low": 0.25, "high": 0.75}, percent=True)
    '50.0 [25.0, 75.0]'
    """
    value, low, high = (number(row[end], percent=percent) for end in ("value", "low", "high"))
    return f"{value} [{low}, {high}]" if interval and math.isfinite(row["low"]) else value


def number(value: float, *, percent: bool = False) -> str:
    """Format three digits, or percent with one decimal; integers unchanged; two digits of a small
    fraction.

    >>> number(0.12345), number(0.12345, percent=True), number(7.0), number(0.00012)
    ('0.123', '12.3', '7', '0.00012')
    >>> number(1.2345), number(-12.345), number(1234.5), number(math.nan)
    ('1.23', '-12.3', '1234', '–')
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
    """Format the table in Markdown, without its title; columns of numbers are right-aligned."""
    cells = [[markdown_text(cell) for cell in row] for row in (table.header, *table.rows)]
    rule = ["---"] * table.lead + ["---:"] * (len(table.header) - table.lead)
    return "\n".join("| " + " | ".join(row) + " |" for row in [cells[0], rule, *cells[1:]])


def markdown_text(text: object) -> str:
    r"""Format a text on one line, so that Markdown shows it as it is, without markup.

    >>> markdown_text("a |\n<b> [1](2)")
    'a \\| \\<b> [1]\\(2)'
    """
    markup = r"[\\`*|<~$]|&(?=#?\w+;)|(?<=\])\(|(?<![^\W_])_|_(?![^\W_])"
    return re.sub(markup, r"\\\g<0>", " ".join(str(text).split()))


def print_table(table: Table) -> None:
    """Print the table on standard output, at its natural width if it is not a terminal."""
    from rich.console import Console
    from rich.table import Table as RichTable

    width = None if sys.stdout.isatty() else 240
    console = Console(highlight=False, markup=False, emoji=False, width=width)
    grid = RichTable(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="italic")
    for i, name in enumerate(table.header):
        grid.add_column(name, justify="left" if i < table.lead else "right", overflow="fold")
    for row in table.rows:
        grid.add_row(*map(str, row))
    console.print(table.title, style="bold")
    console.print(grid)
    console.print()
