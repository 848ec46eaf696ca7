"""Statistics of rows, their 95 % intervals over units, and their paired change between two sets of
rows.

    share("right", "em")             # the mean of a field that is in [0, 1]
    Statistic("accuracy gap", ("known", "biased"), lambda sums_RC: ...)
    OfRows("different answers", ("answer",), lambda rows: rows["answer"].nunique())
    Comparison("same answer", ("answer",), lambda rows, first: ...)

A `Statistic` is a function of sums over rows, so that leaving out a unit only needs its sums; the
others see all rows.

Shape letters: N rows, U units, C columns (the number of rows, then the fields), R sets of rows, S
sides (1, or 2 of a change).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from interventune.metrics.intervals import interval, interval_of_change, jackknife_error

from .results import NO_INTERVAL, Estimate

if TYPE_CHECKING:
    from pandas import DataFrame

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Statistic:
    """A function of sums over rows. A row counts if it has all fields.

    Args:
        heading: in tables and figures.
        fields: keys of a row: numbers or booleans.
        of: sums (R, C), the number of rows first, to (R,); by default the mean of the first field.
        n: the sum that is reported as n, as a function of the sums (C,); by default the number of
            rows.
        share: the mean of one field in [0, 1]: shown in percent.
        limits: the least and the largest value, for the interval; of a share 0 and 1.
    """

    numeric: ClassVar[bool] = True
    """Whether the fields are numbers."""
    change_only: ClassVar[bool] = False
    """Whether only a change has a value."""

    heading: str
    fields: tuple[str, ...]
    of: Callable[..., Any] = lambda sums_RC: sums_RC[:, 1] / sums_RC[:, 0]
    n: Callable[[Floats], float] = lambda sum_C: sum_C[0]
    share: bool = False
    limits: tuple[float, float] | None = None

    def columns(self, fields_NF: Floats) -> Floats:
        """Return the columns (N, C) of rows, given their fields."""
        return np.insert(fields_NF, 0, 1.0, axis=1)

    def leave_units_out(self, sides: Sequence[DataFrame], unit_N: Ints) -> tuple[Floats, Floats]:
        """Compute the statistic of the rows; of two sides, how much larger it is in the first.

        Args:
            sides: the fields of the N rows, once or twice.
            unit_N: their units, 0 to U - 1.

        Returns:
            The values of all rows, then without each unit, (1 + U,); n of all rows, then of each
            unit, by side (S, 1 + U).
        """
        columns = (self.columns(side.to_numpy(dtype=np.float64)) for side in sides)
        by_column = ([np.bincount(unit_N, one_N) for one_N in each_NC.T] for each_NC in columns)
        sums_SUC = np.stack([np.stack(sums_CU, axis=1) for sums_CU in by_column])
        all_S1C = sums_SUC.sum(axis=1, keepdims=True)
        values = map(self.of, all_S1C - np.insert(sums_SUC, 0, 0, axis=1))
        n_SU = np.apply_along_axis(self.n, 2, np.concatenate([all_S1C, sums_SUC], axis=1))
        return np.subtract.reduce([*values]), n_SU


@dataclass(frozen=True)
class OfRows(Statistic):
    """A function `of` the table of all rows of a cell, with the fields, which may have any type."""

    numeric = False

    def value(self, sides: Sequence[DataFrame]) -> float:
        """Return the value of rows or, of two sides, how much larger it is in the first."""
        return float(np.subtract.reduce([self.of(side) for side in sides]))

    def leave_units_out(self, sides: Sequence[DataFrame], unit_N: Ints) -> tuple[Floats, Floats]:
        """See Statistic."""
        n_U = np.bincount(unit_N)
        values = [self.value(sides)]
        for unit in range(len(n_U)):
            others = [side[unit_N != unit] for side in sides]
            # Undefined without the only unit.
            values.append(self.value(others) if len(n_U) > 1 else math.nan)
        return np.array(values), np.tile(np.insert(n_U, 0, len(unit_N)), (len(sides), 1))


@dataclass(frozen=True)
class Comparison(OfRows):
    """A function `of` two tables of the same questions in the same order: of a later and of the
    first checkpoint, or value of a compared dimension.
    """

    change_only = True

    def value(self, sides: Sequence[DataFrame]) -> float:
        """Return the value of two sides."""
        return float(self.of(*sides))


def share(heading: str, field: str) -> Statistic:
    """The mean of a field in [0, 1]."""
    return Statistic(heading, (field,), share=True)


def mean(heading: str, field: str) -> Statistic:
    """The mean of any number."""
    return Statistic(heading, (field,))


def estimate(statistic: Statistic, rows: DataFrame, first: DataFrame | None = None) -> Estimate:
    """Compute a statistic of rows with its interval over units; or its difference from that of the
    `first` rows, over the questions that both answered, where a unit has the rows of both sides.

    Args:
        statistic: the statistic to compute.
        rows: its fields (numbers as float64), and the column `unit`; rows without a field (NaN) are
            ignored.
        first: the same; rows with the same index have the same question, and no index occurs twice.
    """
    fields = list(statistic.fields)
    sides = [side.dropna(subset=fields) for side in (rows, first) if side is not None]
    if first is not None:
        both = sides[1].index.intersection(sides[0].index, sort=False)
        sides = [side.loc[both] for side in sides]
    unit_N = sides[-1]["unit"].factorize()[0]
    if not len(unit_N) or (first is None and statistic.change_only):
        return Estimate(math.nan, NO_INTERVAL, 0, 0)
    sides = [side[fields] for side in sides]
    with np.errstate(invalid="ignore", divide="ignore"):
        (value, *others), n_SU = statistic.leave_units_out(sides, unit_N)
        counted_SU = n_SU[:, 1:] > 0
        units = int(counted_SU.all(axis=0).sum())
        error = jackknife_error(value, np.array(others)[counted_SU.any(axis=0)])
        if first is None or statistic.change_only:
            limits = (0, 1) if statistic.share else statistic.limits
            ends = interval(value, error, units, limits)
        elif statistic.share:
            one_N, other_N = (side.iloc[:, 0].to_numpy(dtype=np.float64) for side in sides)
            ends = interval_of_change(value, error, np.square(one_N - other_N).mean(), units)
        else:
            ends = interval(value, error, units)
    return Estimate(float(value), (float(ends[0]), float(ends[1])), int(n_SU[:, 0].min()), units)
