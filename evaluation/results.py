"""Results: a long table, one row per measure and cell, each with its value, 95 % interval, n and
units.

results = Results(("variant",), "questions")
place = {"checkpoint": "ibt", "variant": "os"}
results.add(Number("em", place, Estimate(0.31, 0.2, 0.4, n=150, units=40)))
results.add(plain("em", 0.05, 150, **place, against="ot"))  # ibt - ot, without an interval
results.frame                                               # pandas, as written to results.csv
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pandas import DataFrame

Row = dict[str, Any]
"""One example, or a part of it: its dimensions, unit, fields, and any other information."""
ALWAYS = ("checkpoint", "against")
"""The first columns: the model, and what a number is compared with (empty: a plain number)."""
NO_INTERVAL = (math.nan, math.nan)


class Estimate(NamedTuple):
    """A number (NaN: undefined), the ends of its 95 % interval (NaN: none), its numbers of rows (of
    one seed) and units, and of seeds, whose mean it is, with their standard deviation.
    """

    value: float
    low: float
    high: float
    n: int
    units: int
    seeds: int = 1
    seed_std: float = math.nan


NUMBERS = Estimate._fields
"""The last columns but one, `unit`."""


class Number(NamedTuple):
    """An estimate with its place in the table."""

    measure: str
    place: Mapping[str, Any]
    estimate: Estimate
    unit: str = ""
    """The unit of its interval, a plural noun, if it is not the table's."""


def plain(measure: str, value: float, n: int, *, seeds: int = 1, **place: Any) -> Number:
    """A number without an interval."""
    return Number(measure, place, Estimate(value, *NO_INTERVAL, n, n, seeds))


class Results:
    """Collects the long table.

    Args:
        by: names of the dimensions after `checkpoint` and `against`, in the order of the columns.
        unit: the unit of intervals, a plural noun.
        numbers: the first ones; changes that no question has are `lacking`.
    """

    def __init__(self, by: Sequence[str], unit: str, numbers: Iterable[Number] = ()) -> None:
        self.by = tuple(dict.fromkeys((*ALWAYS, *by)))
        self.unit = unit
        self._rows: dict[tuple[Any, ...], Row] = {}
        self.lacking = list[tuple[str, str]]()
        """Measures of changes without a number, and what these would be compared with."""
        for number in numbers:
            if number.estimate.n or not number.place.get("against"):
                self.add(number)
            else:
                self.lacking.append((number.measure, number.place["against"]))

    def add(self, number: Number) -> None:
        """Add a number; dimensions that its place omits are empty. ValueError: an unknown
        dimension, or a second number at one place.
        """
        measure, place, estimate, unit = number
        if unknown := set(place) - set(self.by):
            raise ValueError(
                f"results: no dimension {min(unknown)!r}; there are {', '.join(self.by)}"
            )
        row = {name: place.get(name, "") for name in self.by} | {"measure": measure}
        if (key := tuple(row.values())) in self._rows:
            raise ValueError(f"results: a second number for {key}")
        self._rows[key] = row | estimate._asdict() | {"unit": unit or self.unit}

    def __iter__(self) -> Iterator[Number]:
        for row in self._rows.values():
            estimate = Estimate(*(row[name] for name in NUMBERS))
            place = {name: row[name] for name in self.by}
            yield Number(row["measure"], place, estimate, row["unit"])

    @property
    def frame(self) -> DataFrame:
        """Return the table: the dimensions, then measure, NUMBERS and unit."""
        import pandas as pd

        columns = [*self.by, "measure", *NUMBERS, "unit"]
        return pd.DataFrame(list(self._rows.values()), columns=columns)

    def at(self, measure: str, **cell: Any) -> Row | None:
        """Return the number of a cell, or None; omitted dimensions are empty."""
        return self._rows.get((*(cell.get(name, "") for name in self.by), measure))
