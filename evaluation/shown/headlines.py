"""The clauses of a headline.

Said("unknown", "says unknown where the evidence is missing", variant=DELETED) # says unknown where
the evidence is missing (ts_r) 14 % -> 93 %, +79 points [76, 82], n 852
"""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from interventune.evaluation.results import ALWAYS, Results, Row

from .views import cells_of


class Said:
    """A clause of a headline for each of its cells: a measure of the first and of the last
    checkpoint, with the change.

    Args:
        measure: its name.
        words: text before the numbers. It describes the values fixed by `at`; other parts of the
            place follow it.
        at: dimension to the value, or to a set of values, of the cells. Of other dimensions, those
            in the first entry of a protocol's cells may have any value; the rest are empty.
    """

    def __init__(self, measure: str, words: str, **at: Any) -> None:
        self.measure, self.words, self.at = measure, words, at

    def clauses(
        self, results: Results, names: Sequence[str], whole: Sequence[str], *, percent: bool
    ) -> Iterator[str]:
        """The clauses of the cells that the last checkpoint has."""
        first, last, dimensions = names[0], names[-1], results.by[len(ALWAYS) :]
        where = {name: "" for name in dimensions if name not in whole} | self.at
        cells = cells_of(results.frame, {"measure": self.measure, "against": "", **where})
        free = [name for name in dimensions if not isinstance(self.at.get(name), str)]
        several = [name for name in free if name in self.at or cells[name].nunique() > 1]
        for now in cells[cells["checkpoint"] == last].to_dict("records"):
            place = {name: now[name] for name in dimensions}
            ends = [
                results.at(self.measure, checkpoint=name, **place)
                for name in dict.fromkeys([first, last])
            ]
            change = results.at(self.measure, checkpoint=last, against=first, **place)
            named = ", ".join(str(place[name]) for name in several if place[name] != "")
            words = f"{self.words} ({named})" if named else self.words
            yield f"{words} {in_words([*filter(None, ends)], change, percent=percent)}"


def in_words(ends: Sequence[Row], change: Row | None, *, percent: bool) -> str:
    """Format a number, or how the first became the last, with the interval and n.

    >>> row = {"value": 0.14, "low": 0.1, "high": 0.2, "n": 852}
    >>> in_words([row], None, percent=True)
    '14 % [10, 20], n 852'
    >>> change = {"value": 0.79, "low": 0.76, "high": 0.82, "n": 850}
    >>> in_words([row, row | {"value": 0.93}], change, percent=True)
    '14 % -> 93 %, +79 points [76, 82], n 850 of 852'
    """
    unit, points = (" %", " points") if percent else ("", "")
    words = " -> ".join(f"{short(row['value'], percent=percent)}{unit}" for row in ends)
    shown, of = ends[-1], ""
    if change:
        shown, sign = change, "+" if change["value"] > 0 else ""
        words += f", {sign}{short(change['value'], percent=percent)}{points}"
        most = max(row["n"] for row in ends)
        of = f" of {most}" if most != change["n"] else ""
    if math.isfinite(shown["low"]):
        low, high = (short(shown[end], percent=percent) for end in ("low", "high"))
        words += f" [{low}, {high}]"
    return f"{words}, n {shown['n']}{of}"


def short(value: float, *, percent: bool = False) -> str:
    """Format two decimals without a leading zero, or whole percent; more digits near 0 and 1.

    >>> [short(value) for value in (0.62, 1.0, -0.05, 0.0012, 0.9996, 12.345, 0.0)]
    ['.62', '1.00', '-.050', '.0012', '.9996', '12.35', '.00']
    >>> [short(value, percent=True) for value in (0.359, 1.0, 0.0042)]
    ['36', '100', '0.4']
    """
    if not math.isfinite(value):
        return "–"
    near = min(abs(value), abs(1 - value))
    more = sum(0 < near < limit for limit in (0.1, 0.01))  # digits
    if percent:
        return f"{100 * value:.{more // 2}f}"
    return re.sub(r"^(-?)0\.", r"\1.", f"{value:.{2 + more}f}")
