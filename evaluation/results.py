"""Results: a long table, one row per measure and cell, each with its value, 95 % interval and n.

    results = Results(unit="story", by=("checkpoint", "variant"))
    results.add_means(rows, ("em", "f1"), unit="id")            # of examples, one dict each
    results.add("mu", 0.31, low=0.2, high=0.4, n=150, checkpoint="ot", variant="os")
    results.frame                                               # pandas, as written to results.csv

Intervals are bootstraps over independent units (groups, pairs, stories): metrics/intervals.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame

ENDS = ("value", "low", "high", "n")
"""The last columns of the table, behind the dimensions and the measure."""

Row = Mapping[str, Any]
NONE = (math.nan, math.nan)
"""No interval."""


class Results:
    """Collects the long table.

    Args:
        by: names of the dimensions, in the order of the columns, such as ("checkpoint", "data", "variant").
        unit: what is resampled for intervals, in words, for the record.

    `resamples` is how many were drawn, where they were fewer than usual.
    """

    resamples: int | None = None

    def __init__(self, by: Sequence[str], unit: str) -> None:
        self.by, self.unit = tuple(by), unit
        self._rows: list[dict[str, Any]] = []

    def add(
        self, measure: str, value: float, *, n: int, interval: tuple[float, float] = NONE, **cell: Any
    ) -> None:
        """One number.

        Args:
            measure: its name, in the words of code and logs.
            value: NaN where it is not defined.
            n: how many units are behind it.
            interval: its ends.
            cell: its place by dimension; a dimension left out is empty.

        Raises:
            ValueError: a dimension that the table does not have.
        """
        if strange := set(cell) - set(self.by):
            raise ValueError(f"results: no dimension {min(strange)!r}; there are {', '.join(self.by)}")
        place = {name: cell.get(name, "") for name in self.by}
        self._rows.append(
            place
            | {"measure": measure, "value": float(value)}
            | {"low": float(interval[0]), "high": float(interval[1]), "n": int(n)}
        )

    def add_means(
        self,
        rows: Iterable[Row],
        measures: Sequence[str],
        *,
        unit: str,
        by: Sequence[str] | None = None,
        **cell: Any,
    ) -> None:
        """The mean of each measure over the rows of each cell, with a bootstrap interval over units.

        Args:
            rows: one per example, with the dimensions, the unit and the measures as keys; a row without a
                measure (or with None) does not count for it.
            measures: keys of numbers or booleans.
            unit: the key that tells which rows belong together.
            by: the dimensions that tell cells apart (default: all of the table that the rows have).
            cell: the same place for all rows.
        """
        from metrics.intervals import mean_interval

        rows = list(rows)
        by = [name for name in self.by if rows and name in rows[0]] if by is None else by
        for place, members in grouped(rows, by):
            for measure in measures:
                counted = [row for row in members if row.get(measure) is not None]
                values = [float(row[measure]) for row in counted]
                value, interval, n = mean_interval(values, [row[unit] for row in counted])
                self.add(measure, value, n=n, interval=interval, **place, **cell)

    @property
    def frame(self) -> DataFrame:
        """The table: the dimensions, then measure, value, low, high, n."""
        import pandas as pd

        return pd.DataFrame(self._rows, columns=[*self.by, "measure", *ENDS])

    def row(self, measure: str, **cell: Any) -> dict[str, Any] | None:
        """One row of the table, the first that fits; None where there is none."""
        for row in self._rows:
            if row["measure"] == measure and all(row[name] == value for name, value in cell.items()):
                return row
        return None

    def rows(self, measure: str, checkpoints: Iterable[str], **cell: Any) -> list[dict[str, Any] | None]:
        """The same of several checkpoints."""
        return [self.row(measure, checkpoint=name, **cell) for name in checkpoints]

    def value(self, measure: str, **cell: Any) -> float:
        """One number of the table; NaN where there is none."""
        row = self.row(measure, **cell)
        return math.nan if row is None else float(row["value"])


def grouped(rows: Iterable[Row], by: Sequence[str]) -> Iterator[tuple[dict[str, Any], list[Row]]]:
    """(cell, its rows), in the order in which cells appear."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row.get(name, "") for name in by), []).append(row)
    for key, members in found.items():
        yield dict(zip(by, key, strict=True)), members
