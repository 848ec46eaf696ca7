"""Results: a long table, one row per measure and cell, each with its value, 95 % interval, n and units.

results = Results(("variant",), unit="questions")
results.add("em", 0.31, interval=(0.2, 0.4), n=150, checkpoint="ot", variant="os")
results.add("em", 0.05, n=150, checkpoint="ibt", against="ot", variant="os")     # ibt - ot
results.frame                                               # pandas, as written to results.csv
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame

Row = Mapping[str, Any]
ALWAYS = ("checkpoint", "against")
"""The first columns: who answered, and with what a number is compared (empty: a number itself)."""
NUMBERS = ("value", "low", "high", "n", "units")
"""The last columns."""
NO_INTERVAL = (math.nan, math.nan)


class Results:
    """Collects the long table.

    Args:
        by: names of the dimensions behind `checkpoint` and `against`, in the order of the columns.
        unit: what is resampled for intervals, in words, in the plural.
    """

    resamples: int | None = None
    """How many were drawn, where they were fewer than usual."""

    def __init__(self, by: Sequence[str], unit: str) -> None:
        self.by, self.unit = tuple(dict.fromkeys((*ALWAYS, *by))), unit
        self._rows: dict[tuple[Any, ...], dict[str, Any]] = {}

    def add(
        self,
        measure: str,
        value: float,
        *,
        n: int,
        interval: tuple[float, float] = NO_INTERVAL,
        units: int | None = None,
        **cell: Any,
    ) -> None:
        """One number.

        Args:
            measure: its name, in the words of code and logs.
            value: NaN where it is not defined.
            n: how many rows it is computed from.
            interval: its ends.
            units: how many units these rows belong to (default: n).
            cell: its place by dimension; a dimension left out is empty.

        Raises:
            ValueError: a dimension that the table does not have, or a second number at one place.
        """
        if unknown := set(cell) - set(self.by):
            raise ValueError(f"results: no dimension {min(unknown)!r}; there are {', '.join(self.by)}")
        place = {name: cell.get(name, "") for name in self.by} | {"measure": measure}
        if self._rows.get(key := tuple(place.values())):
            raise ValueError(f"results: a second number for {key}")
        numbers = (float(value), *map(float, interval), int(n), int(n if units is None else units))
        self._rows[key] = place | dict(zip(NUMBERS, numbers, strict=True))

    @property
    def frame(self) -> DataFrame:
        """The table: the dimensions, then measure, value, low, high, n, units."""
        import pandas as pd

        return pd.DataFrame(list(self._rows.values()), columns=[*self.by, "measure", *NUMBERS])

    def at(self, measure: str, **cell: Any) -> dict[str, Any] | None:
        """The number of a cell, None where there is none; a dimension that is not named is empty."""
        return self._rows.get((*(cell.get(name, "") for name in self.by), measure))
