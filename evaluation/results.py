"""Results: a long table, one row per measure and cell, each with its value, 95 % interval, n and
units.

results = Results(("variant",), unit="questions")
results.add("em", 0.31, interval=(0.2, 0.4), n=150, checkpoint="ot", variant="os")
results.add("em", 0.05, n=150, checkpoint="ibt", against="ot", variant="os")     # ibt - ot
results.frame                                               # pandas, as written to results.csv
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pandas import DataFrame

Row = Mapping[str, Any]
"""One example: its dimensions, unit, fields, and any other information."""
ALWAYS = ("checkpoint", "against")
"""The first columns: the model, and what a number is compared with (empty: a plain number)."""
NUMBERS = ("value", "low", "high", "n", "units")
"""The last columns but one, `unit`."""
NO_INTERVAL = (math.nan, math.nan)


class Estimate(NamedTuple):
    """A number (NaN: undefined), the ends of its 95 % interval (NaN: none), and its numbers of rows
    and units.
    """

    value: float
    interval: tuple[float, float]
    n: int
    units: int


class Number(NamedTuple):
    """An estimate with its place in the table."""

    measure: str
    place: Mapping[str, Any]
    estimate: Estimate
    unit: str = ""
    """The unit of its interval, a plural noun, if it is not the table's."""


def plain(measure: str, value: float, n: int, **place: Any) -> Number:
    """A number without an interval."""
    return Number(measure, place, Estimate(value, NO_INTERVAL, n, n))


class Results:
    """Collects the long table.

    Args:
        by: names of the dimensions after `checkpoint` and `against`, in the order of the columns.
        unit: the unit of intervals, a plural noun.
    """

    def __init__(self, by: Sequence[str], unit: str) -> None:
        self.by, self.unit = tuple(dict.fromkeys((*ALWAYS, *by))), unit
        self._rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.lacking = list[tuple[str, str]]()
        """Measures of changes without a number, and what these would be compared with."""

    def add(
        self,
        measure: str,
        value: float,
        *,
        n: int,
        interval: tuple[float, float] = NO_INTERVAL,
        units: int | None = None,
        unit: str = "",
        **cell: Any,
    ) -> None:
        """Add one number.

        Args:
            measure: its name in code and logs.
            value: NaN if undefined.
            n: the number of rows that it is computed from.
            interval: its ends.
            units: the number of units that these rows belong to (default: n).
            unit: another unit than the table's.
            cell: its place by dimension; omitted dimensions are empty.

        Raises:
            ValueError: an unknown dimension, or a second number at one place.
        """
        if unknown := set(cell) - set(self.by):
            raise ValueError(
                f"results: no dimension {min(unknown)!r}; there are {', '.join(self.by)}"
            )
        place = {name: cell.get(name, "") for name in self.by} | {"measure": measure}
        if self._rows.get(key := tuple(place.values())):
            raise ValueError(f"results: a second number for {key}")
        counts = int(n), int(n if units is None else units)
        numbers = (float(value), *map(float, interval), *counts, unit or self.unit)
        self._rows[key] = place | dict(zip((*NUMBERS, "unit"), numbers, strict=True))

    def extend(self, numbers: Iterable[Number]) -> None:
        """Add numbers; changes that no question has are `lacking`."""
        for measure, place, estimate, unit in numbers:
            if estimate.n or not place.get("against"):
                self.add(measure, **estimate._asdict(), unit=unit, **place)
            else:
                self.lacking.append((measure, place["against"]))

    @property
    def frame(self) -> DataFrame:
        """Return the table: the dimensions, then measure, value, low, high, n, units, unit."""
        import pandas as pd

        return pd.DataFrame(
            list(self._rows.values()), columns=[*self.by, "measure", *NUMBERS, "unit"]
        )

    def at(self, measure: str, **cell: Any) -> dict[str, Any] | None:
        """Return the number of a cell, or None; omitted dimensions are empty."""
        return self._rows.get((*(cell.get(name, "") for name in self.by), measure))
