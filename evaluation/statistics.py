"""Statistics of rows, their 95 % intervals over units, and their paired change between two sets of
rows.

    share("right", "em")             # the mean of a field that is in [0, 1]
    Statistic("accuracy gap", ("known", "biased"), lambda sums_RC: ...)

A statistic is a function of sums over rows, so that leaving out a unit only needs its sums.

Shape letters: N rows, U units, C columns (the number of rows, then the fields), R sets of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from interventune.evaluation.results import NO_INTERVAL
from interventune.metrics.intervals import interval, interval_of_change, jackknife_error

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

    heading: str
    fields: tuple[str, ...]
    of: Callable[..., Floats] = lambda sums_RC: sums_RC[:, 1] / sums_RC[:, 0]
    n: Callable[[Floats], float] = lambda sum_C: sum_C[0]
    share: bool = False
    limits: tuple[float, float] | None = None

    def columns(self, fields_NF: Floats) -> Floats:
        """Return the columns (N, C) of rows, given their fields."""
        return np.insert(fields_NF, 0, 1.0, axis=1)


def unit_sums(unit_N: Ints, columns_NC: Floats) -> Floats:
    """Return the columns' sums by unit, (U, C)."""
    return np.stack([np.bincount(unit_N, column_N) for column_N in columns_NC.T], axis=1)


def share(heading: str, field: str) -> Statistic:
    """The mean of a field in [0, 1]."""
    return Statistic(heading, (field,), share=True)


def mean(heading: str, field: str) -> Statistic:
    """The mean of any number."""
    return Statistic(heading, (field,))


class Estimate(NamedTuple):
    """A number with the ends of its 95 % interval (NaN: none), and its numbers of rows
    and units.
    """

    value: float
    interval: tuple[float, float]
    n: int
    units: int


def estimate(statistic: Statistic, rows: DataFrame, first: DataFrame | None = None) -> Estimate:
    """Compute a statistic of rows with its interval over units; or its difference from that of the
    `first` rows, over the questions that both answered, where a unit has the rows of both sides.

    Args:
        statistic: the statistic to compute.
        rows: its fields as float64, and the column `unit`; rows without a field (NaN) are ignored.
        first: the same; rows with the same index have the same question, and no index occurs twice.
    """
    fields = list(statistic.fields)
    sides = [side.dropna(subset=fields) for side in (rows, first) if side is not None]
    if first is not None:
        both = sides[1].index.intersection(sides[0].index, sort=False)
        sides = [side.loc[both] for side in sides]
    unit_N = sides[-1]["unit"].factorize()[0]
    if not len(unit_N):
        return Estimate(math.nan, NO_INTERVAL, 0, 0)
    fields_NF = [side[fields].to_numpy(dtype=np.float64) for side in sides]
    sums_UC = [unit_sums(unit_N, statistic.columns(side_NF)) for side_NF in fields_NF]
    n_U = np.array([[statistic.n(sum_C) for sum_C in side_UC] for side_UC in sums_UC])
    units = int((n_U > 0).all(axis=0).sum())
    with np.errstate(invalid="ignore", divide="ignore"):
        # Of all rows, then without each unit that counts.
        value, *others = np.subtract.reduce(
            [statistic.of(side_UC.sum(0) - np.insert(side_UC, 0, 0, axis=0)) for side_UC in sums_UC]
        )
        error = jackknife_error(value, np.array(others)[(n_U > 0).any(axis=0)])
        if first is None:
            limits = (0, 1) if statistic.share else statistic.limits
            ends = interval(value, error, units, limits)
        elif statistic.share:
            square = np.square(np.subtract(*fields_NF)[:, 0]).mean()
            ends = interval_of_change(value, error, square, units)
        else:
            ends = interval(value, error, units)
    n = min(statistic.n(side_UC.sum(0)) for side_UC in sums_UC)
    return Estimate(float(value), (float(ends[0]), float(ends[1])), int(n), units)
