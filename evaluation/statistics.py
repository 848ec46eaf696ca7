"""Statistics of rows, their 95 % intervals over units, and their paired change between two sets of rows.

    share("right", "em")                                             # the mean of a field that is in [0, 1]
    Statistic("accuracy gap", ("known", "biased"), lambda sums_RC: ...)

A statistic is a function of sums over rows, so a resample only needs counts and sums.

Shape letters: N rows, U units, C columns (the number of rows, then the fields), R resamples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evaluation.results import NO_INTERVAL
from metrics.intervals import bootstrap, unseen_share

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
        n: the sum that is reported as n, as a function of the sums (C,); by default the number of rows.
        share: the mean of one field in [0, 1]: shown in percent, exact interval if all units agree.
    """

    heading: str
    fields: tuple[str, ...]
    of: Callable[..., Floats] = lambda sums_RC: sums_RC[:, 1] / sums_RC[:, 0]
    n: Callable[[Floats], float] = lambda sum_C: sum_C[0]
    share: bool = False

    def resampled(self, unit_N: Ints, sides_NC: Sequence[Floats]) -> tuple[float, tuple[float, float]]:
        """Return the number of all rows, minus that of a second side if there is one, and its interval over
        units, which are numbered 0 to U - 1."""
        sums_UC = np.concatenate([unit_sums(unit_N, side_NC) for side_NC in sides_NC], axis=1)

        def of(sums_RC: Floats) -> Floats:
            return reduce(np.subtract, map(self.of, np.split(sums_RC, len(sides_NC), axis=1)))

        interval = bootstrap(len(sums_UC), lambda weight_RU: of(weight_RU @ sums_UC))
        return float(of(sums_UC.sum(0, keepdims=True))[0]), interval


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
    """A number with the ends of its 95 % interval (NaN: none), and its numbers of rows and units."""

    value: float
    interval: tuple[float, float]
    n: int
    units: int


def estimate(statistic: Statistic, rows: DataFrame, first: DataFrame | None = None) -> Estimate:
    """Compute a statistic of rows with its interval over units; or its difference from that of the `first`
    rows, over the questions that both answered: a paired bootstrap, which draws units and takes both sides
    of each.

    A share whose units are all 0, or all 1, has the exact (Clopper-Pearson) interval over units. If the
    differences d of a share are the same in all rows, there is nothing to resample either. Another
    difference, in [-1, 1], then has at most the probability q of `unseen_share`: the interval is d -/+ q (1
    + |d|).

    Args:
        statistic: the statistic to compute.
        rows: its fields as float64, and the column `unit`; rows without a field (NaN) are ignored.
        first: the same; rows with the same index have the same question, and no index occurs twice.
    """
    fields, changed = list(statistic.fields), first is not None
    sides = [side.dropna(subset=fields) for side in (rows, first) if side is not None]
    if changed:
        both = sides[1].index.intersection(sides[0].index, sort=False)
        sides = [side.loc[both] for side in sides]
    unit_N = sides[-1]["unit"].factorize()[0]
    if not len(unit_N):
        return Estimate(math.nan, NO_INTERVAL, 0, 0)
    one_N1 = np.ones((len(unit_N), 1))
    sides_NC = [np.hstack([one_N1, side[fields].to_numpy(dtype=np.float64)]) for side in sides]
    with np.errstate(invalid="ignore", divide="ignore"):
        value, (low, high) = statistic.resampled(unit_N, sides_NC)
    # Identical resamples show that units agree, not that the number is certain.
    interval = (low, high) if high - low > 1e-12 else NO_INTERVAL
    alike = np.ptp(np.subtract(*sides_NC)[:, 1]) < 1e-12 if changed else value in (0.0, 1.0)
    if statistic.share and alike and unit_N.any():  # several units
        reach = unseen_share(int(unit_N.max()) + 1) * (1 + abs(value) if changed else 1)
        interval = max(-1.0 if changed else 0.0, value - reach), min(1.0, value + reach)
    counts_SU = [[statistic.n(sum_C) > 0 for sum_C in unit_sums(unit_N, side_NC)] for side_NC in sides_NC]
    n = min(statistic.n(side_NC.sum(0)) for side_NC in sides_NC)
    return Estimate(value, interval, int(n), sum(map(all, zip(*counts_SU, strict=True))))
