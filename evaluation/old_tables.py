"""A small table, as Markdown and on the console."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

Cell = str | int | float


@dataclass(frozen=True)
class Table:
    """Rows under a header; the first column is text, the others are numbers."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""


def format_cell(value: Cell) -> str:
    """Four decimals for fractions, whole numbers as they are, a dash where there is no number."""
    if isinstance(value, float):
        return f"{value:.4f}" if math.isfinite(value) else "–"
    return str(value)


def markdown_table(table: Table) -> str:
    """The table in Markdown, without its title."""
    escaped = [[format_cell(cell).replace("|", "\\|") for cell in row] for row in (table.header, *table.rows)]
    rule = ["---"] + ["---:"] * (len(table.header) - 1)
    return "\n".join("| " + " | ".join(row) + " |" for row in [escaped[0], rule, *escaped[1:]])


def print_table(table: Table) -> None:
    """The table on standard output, never narrower than its content where the output is not a terminal."""
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable()
    for i, name in enumerate(table.header):
        shown.add_column(Text(name), justify="right" if i else "left", no_wrap=True)
    for row in table.rows:
        shown.add_row(*(Text(format_cell(cell)) for cell in row))
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(
        Text(table.title, style="italic")
    )  # as a title of RichTable it would wrap at a narrow table
    console.print(shown)
