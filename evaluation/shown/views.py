"""Cells of the long table in the tables and in the summary of a report.

    View("By variant", ("variant",), {"f1": "F1", "em": "EM"})

A column for each checkpoint, and for its change since the first; a line for each measure and
combination of the leading dimensions, ending in n, and in the number of units where they are too
few. Cells show the value with its interval.

    Said("unknown", "says unknown where the evidence is missing", "up", {"variant": DELETED})

A row of the summary: says unknown where the evidence is missing, ts_r | 14.0 % | 93.0 % |
+79.0 points [76.0, 82.0] | yes | 852
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from interventune.evaluation.results import ALWAYS, Results, Row

if TYPE_CHECKING:
    from pandas import DataFrame


FEW = 10
"""Fewer units give intervals that may be far too narrow or too wide."""


@dataclass(frozen=True)
class Table:
    """Displayed rows under a header; the first `lead` columns identify a row. `intervals` says what
    brackets are, for a table that stands alone.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str | int, ...], ...]
    caption: str = ""
    lead: int = 1
    intervals: str = ""


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
        percent: the measures in percent, as in the papers; default: the shares.
        interval: show the interval in brackets.
        caption: text under the table.
        most: number of displayed lines; the rest is in results.csv.
    """

    title: str
    by: tuple[str, ...]
    measures: Mapping[str, str] = field(default_factory=dict)
    across: str = "checkpoint"
    where: Mapping[str, Any] = field(default_factory=dict)
    percent: Sequence[str] | set[str] | None = None
    interval: bool = True
    caption: str = ""
    most: int = 90

    def __call__(self, frame: DataFrame) -> Table:
        """Make the table of a long table, without rows if there are no such cells. ValueError if
        several numbers are in one place: the view names too few dimensions.
        """
        import pandas as pd

        order = list(self.measures)
        percent = self.percent or ()
        frame = cells_of(frame, {**self.where, "measure": order})
        if {*frame["measure"]} == {"failed"}:  # of a set without the view's own measures
            frame = frame[:0]
        if "against" not in self.where:
            every = frame
            frame = frame[frame["against"] == ""]
            changes = every[every["against"].isin(frame["checkpoint"])]
            # With more checkpoints, changes are only in results.csv.
            if self.across == "checkpoint" and 0 < changes["checkpoint"].nunique() <= 2:
                both = changes["checkpoint"] + " - " + changes["against"]
                frame = pd.concat([frame, changes.assign(checkpoint=both)])
        frame = frame.sort_values(
            "measure", key=lambda names: names.map(order.index), kind="stable"
        )
        by = [
            name
            for name in self.by
            if self.where.get(name, "") is None or frame[name].nunique() > 1
        ]
        if self.across != "measure" and (frame["measure"].nunique() > 1 or not by):
            by = ["measure", *by]
        by = by or list(self.by[:1])
        if frame.duplicated([*by, self.across]).any():
            raise ValueError(
                f"{self.title}: two numbers in one place; these tell too little apart: {by}"
            )
        cells = [
            shown(row, percent=row["measure"] in percent, interval=self.interval)
            for row in frame.to_dict("records")
        ]
        heading_of = headings(self.measures, percent)
        frame = frame.assign(shown=cells, measure=frame["measure"].map(heading_of))
        columns = frame[self.across].unique()
        rows = list[tuple[str | int, ...]]()
        lines = list(frame.groupby(by, sort=False))
        for place, line in lines[: self.most]:
            numbers = line[line["against"] == ""]
            least, most = (numbers if len(numbers) else line)["n"].agg(["min", "max"])
            n = int(least) if least == most else f"{least}–{most}"
            few = line[self.interval & line["low"].notna() & (line["units"] < FEW)]
            for row in few.nsmallest(1, "units").itertuples():
                n = n if n == row.units else f"{n} ({row.units} {row.unit})"
            cell_of = dict(zip(line[self.across], line["shown"], strict=True))
            lead = (str(part) or "all" for part in place)
            rows.append((*lead, *(cell_of.get(column, "") for column in columns), n))
        caption = self.caption
        header = (*by, *map(str, columns), "n")
        if len(lines) > self.most:
            caption = f"{caption} {len(lines) - self.most} more lines are in results.csv.".strip()
        intervals = about_intervals(frame) if self.interval else ""
        return Table(self.title, header, tuple(rows), caption, len(by), intervals)


def about_intervals(frame: DataFrame) -> str:
    """Say what brackets and ± are in cells of a long table."""
    within = frame[frame["low"].notna()]
    if within.empty:
        return "No intervals."
    values = frame[frame["against"] == ""]
    several = (frame if values.empty else values).groupby("checkpoint", sort=False)["seeds"].max()
    seeds = ", ".join(f"{name}: {count}" for name, count in several.items() if count > 1)
    text = f"Brackets: 95 % interval over {' or '.join(within['unit'].unique())}"
    text += f" and seeds ({seeds}; ±: their standard deviation)" if seeds else ", of one seed"
    few = f"; fewer than {FEW} (see n) are too few to trust it"
    return f"{text}{few if (within['units'] < FEW).any() else ''}."


def headings(measures: Mapping[str, str], percent: Collection[str]) -> dict[str, str]:
    """Return the headings of measures, with the unit of those in percent.

    >>> headings({"em": "EM", "unknown": "unk%", "mu": "mu"}, ["em", "unknown"])
    {'em': 'EM (%)', 'unknown': 'unk%', 'mu': 'mu'}
    """
    return {
        name: f"{text} (%)" if name in percent and not text.endswith("%") else text
        for name, text in measures.items()
    }


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


def shown(row: Row, *, percent: bool = False, interval: bool = True, unit: str = "") -> str:
    """Format a number with its unit, interval and standard deviation over seeds.

    >>> row = {"value": 0.5, "low": 0.25, "high": 0.75, "seed_std": 0.02}
    >>> shown(row, percent=True, unit=" %")
    '50.0 ± 2.00 % [25.0, 75.0]'
    """
    ends = ("value", "low", "high", "seed_std")
    value, low, high, spread = (number(row[end], percent=percent) for end in ends)
    value += f" ± {spread}" if interval and math.isfinite(row["seed_std"]) else ""
    value += unit
    return f"{value} [{low}, {high}]" if interval and math.isfinite(row["low"]) else value


def number(value: float, *, percent: bool = False) -> str:
    """Format three significant digits, of a share in percent; 0, integers, and all above 100 as
    integers.

    >>> [number(value) for value in (0.12345, 7.0, 0.99996, 1234.5, 0.000123, -3.4e-5, math.nan)]
    ['0.123', '7', '1.00', '1234', '0.000123', '-3.40e-05', '–']
    >>> [number(value, percent=True) for value in (0.54, 1 / 1199, 1.0, 0.9996, -0.05, -2.3e-16)]
    ['54.0', '0.0834', '100', '100', '-5.00', '0']
    """
    if not math.isfinite(value):
        return "–"
    rounding_error = abs(value) < 1e-15
    value *= 100 if percent else 1
    if rounding_error or abs(value) >= 100 or (value == int(value) and not percent):
        return str(round(value))
    return f"{value:#.3g}".rstrip(".")


def markdown_table(table: Table) -> str:
    """Format the table in Markdown, without its title; columns of numbers are right-aligned."""
    cells = [[markdown_text(cell) for cell in row] for row in (table.header, *table.rows)]
    rule = ["---"] * table.lead + ["---:"] * (len(table.header) - table.lead)
    return "\n".join("| " + " | ".join(row) + " |" for row in [cells[0], rule, *cells[1:]])


def latex_table(table: Table, report: str, folder: str) -> str:
    """Format a table in LaTeX, with the package booktabs; its caption begins with the title of the
    report, its label with the name of its folder.
    """
    import pandas as pd

    columns = "l" * table.lead + "r" * (len(table.header) - table.lead)
    frame = pd.DataFrame(table.rows, columns=table.header, dtype=object)
    text = " ".join(filter(None, (f"{report}: {table.title}.", table.caption, table.intervals)))
    caption = re.sub(r"[&%$#_{}]", r"\\\g<0>", re.sub(r"[\\^~]", "", text))
    label = "tab:" + re.sub(r"\W+", "-", f"{folder} {table.title}".lower()).strip("-")
    return frame.to_latex(
        index=False, escape=True, column_format=columns, caption=caption, label=label
    )


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
    console.print(f"{table.caption}\n" if table.caption else "")


@dataclass(frozen=True)
class Said:
    """A row of a report's summary for each of its cells: a measure of the first and of the last
    checkpoint, with the change.

    Args:
        measure: its name.
        words: what it measures. They describe the values fixed by `where`; other parts of the place
            follow them.
        aim: up, down or same: the change that is good; empty if neither is.
        where: dimension to the value or values of the cells. Of other dimensions, those in the
            first entry of a protocol's cells may have any value; the rest are empty.
    """

    measure: str
    words: str
    aim: str = ""
    where: Mapping[str, Any] = field(default_factory=dict)

    def rows(
        self, results: Results, ends: Sequence[str], whole: Sequence[str], *, percent: bool
    ) -> Iterator[tuple[str, ...]]:
        """The rows of the cells that the last checkpoint has: words, the number of either end, with
        two of them the change and whether it is in the aim's direction, and n with other units.
        """
        unit, points = (" %", " points") if percent else ("", "")
        single = len(ends) == 1
        for words, place in self.places(results, whole):
            numbers = [results.at(self.measure, checkpoint=name, **place) for name in ends]
            change = results.at(self.measure, checkpoint=ends[-1], against=ends[0], **place)
            if (counted := change or numbers[-1]) is None:
                continue
            cells = [
                shown(row, percent=percent, interval=single, unit=unit) if row else ""
                for row in numbers
            ]
            if change:
                sign = "+" if change["value"] > 0 else ""
                cells += [
                    sign + shown(change, percent=percent, unit=points),
                    toward(self.aim, change["low"], change["high"]),
                ]
            elif not single:
                cells += ["", ""]
            n = str(counted["n"])
            if (most := max(row["n"] for row in numbers if row)) != counted["n"]:
                n += f" of {most}"
            if counted["units"] != counted["n"]:
                n += f" ({counted['units']} {counted['unit']})"
            yield words, *cells, n

    def places(self, results: Results, whole: Sequence[str]) -> Iterator[tuple[str, Row]]:
        """The places of the cells, without checkpoint and step, each with the words for it."""
        dimensions = [name for name in results.by if name not in (*ALWAYS, "step")]
        where = {name: "" for name in dimensions if name not in whole} | {**self.where}
        cells = cells_of(results.frame, {"measure": self.measure, "against": "", **where})
        free = [name for name in dimensions if not isinstance(self.where.get(name), str)]
        several = [name for name in free if name in self.where or cells[name].nunique() > 1]
        for row in cells.drop_duplicates([*dimensions, "measure"]).to_dict("records"):
            place = {name: row[name] for name in dimensions}
            named = [str(place[name]) for name in several if place[name] != ""]
            yield ", ".join([self.words, *named]), place


def toward(aim: str, low: float, high: float) -> str:
    """Whether the interval of a change is in the direction of an aim; empty without one.

    >>> [toward(aim, 0.1, 0.2) for aim in ("up", "down", "same")], toward("up", -0.1, 0.2)
    (['yes', 'no', 'no'], 'open')
    """
    if not (aim and math.isfinite(low)):
        return ""
    if low <= 0 <= high:
        return "open"
    return "yes" if aim == ("up" if low > 0 else "down") else "no"
