"""Numbers of rows, their 95 % intervals over units, and their paired change from one set of rows to another.

    share("right", "em")                                             # the mean of a field that is in [0, 1]
    Statistic("accuracy gap", ("known", "biased"), lambda sums_RC: ...)

A statistic is a function of sums over rows, so that a resample is a product of counts and sums; what is none,
such as a mean of means, is `Weighted`.

Shape letters: N rows, U units, C columns (the number of rows, then the fields), F fields, R resamples.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evaluation.results import NO_INTERVAL

if TYPE_CHECKING:
    from pandas import DataFrame, Series

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Statistic:
    """A function of sums over rows. A row counts if it has all fields.

    Args:
        heading: in tables and figures.
        fields: keys of a row: numbers or booleans.
        of: sums (R, C), the number of rows first, to (R,).
        n: the sum that is reported as n, as a function of the sums (C,); by default the number of rows.
        share: the mean of one field that is in [0, 1]: shown in percent, and exact where all units agree.
    """

    heading: str
    fields: tuple[str, ...]
    of: Callable[..., Floats]
    n: Callable[[Floats], float] = lambda sum_C: sum_C[0]
    share: bool = False


class Weighted(Statistic):
    """A number that is no function of sums: `of` takes how often each row counts (R, N), and its fields
    (N, F), to (R,)."""


def share(heading: str, field: str) -> Statistic:
    """The mean of a field that is in [0, 1]."""
    return Statistic(heading, (field,), _mean, share=True)


def mean(heading: str, field: str) -> Statistic:
    """The mean of any number."""
    return Statistic(heading, (field,), _mean)


def _mean(sums_RC: Floats) -> Floats:
    return np.asarray(sums_RC[:, 1] / sums_RC[:, 0])


class Estimate(NamedTuple):
    """A number with the ends of its 95 % interval (NaN: none), and how many rows and units it is of."""

    value: float
    interval: tuple[float, float]
    n: int
    units: int


def estimate(statistic: Statistic, rows: DataFrame) -> Estimate:
    """A statistic of rows with its interval over units.

    A share whose units are all 0, or all 1, has the exact (Clopper-Pearson) interval over units.

    Args:
        statistic: what is computed.
        rows: its fields as float64, and the column `unit`; rows without a field (NaN) do not count.
    """
    return _estimate(statistic, rows.dropna(subset=list(statistic.fields)))


def estimate_change(statistic: Statistic, first: DataFrame, other: DataFrame) -> Estimate:
    """How much more the other rows have than the first, over the questions that both answered: a paired
    bootstrap, which draws units and takes both sides of each.

    Where the differences d of a share are the same in all rows there is nothing to resample. Another
    difference, at least -1 and at most 1, then has at most the probability q of `unseen_share`: the interval
    is d -/+ q (1 + |d|).

    Args:
        statistic: what is computed of either side.
        first: as in `estimate`; the index tells what a row asks, once each.
        other: the same.
    """
    first, other = (rows.dropna(subset=list(statistic.fields)) for rows in (first, other))
    both = first.index.intersection(other.index, sort=False)
    return _estimate(statistic, other.loc[both], first.loc[both])


def _estimate(statistic: Statistic, *sides: DataFrame) -> Estimate:
    """A statistic of rows, minus that of a second side if there is one."""
    unit_N = sides[-1]["unit"]
    units = unit_N.nunique()
    if not units:
        return Estimate(math.nan, NO_INTERVAL, 0, 0)
    sides_NC = [
        np.column_stack([np.ones(len(rows)), rows[list(statistic.fields)].to_numpy(dtype=np.float64)])
        for rows in sides
    ]
    value, interval = _bootstrapped(statistic, unit_N, *sides_NC)
    if statistic.share and units > 1:
        if len(sides) > 1 and np.ptp(sides_NC[0][:, 1] - sides_NC[1][:, 1]) < 1e-12:
            interval = _around(value, units, low=-1.0, scale=1 + abs(value))
        elif len(sides) == 1 and value in (0.0, 1.0):
            interval = _around(value, units, low=0.0, scale=1.0)
    n = min(statistic.n(side_NC.sum(0)) for side_NC in sides_NC)
    return Estimate(value, interval, int(n), _units(statistic, unit_N, *sides_NC))


def _units(statistic: Statistic, unit_N: Series, *sides_NC: Floats) -> int:
    """How many units have rows that count, on all sides."""
    sides_UC = [_sums(side_NC, unit_N) for side_NC in sides_NC]
    return sum(all(statistic.n(sum_C) > 0 for sum_C in sums_C) for sums_C in zip(*sides_UC, strict=True))


def _sums(columns_NC: Floats, unit_N: Series) -> Floats:
    """The columns' sums by unit, (U, C), units in the order of first appearance."""
    number_N = unit_N.factorize()[0]
    return np.stack([np.bincount(number_N, column_N) for column_N in columns_NC.T], axis=1)


def _bootstrapped(
    statistic: Statistic, unit_N: Series, *sides_NC: Floats
) -> tuple[float, tuple[float, float]]:
    """A statistic of rows, minus that of a second side if there is one, and its interval over units."""
    from metrics.intervals import bootstrap

    def change(numbers: list[Floats]) -> Floats:
        return numbers[0] - numbers[1] if len(numbers) > 1 else numbers[0]

    def of_sums(sums_RC: Floats) -> Floats:
        return change([statistic.of(part_RC) for part_RC in np.split(sums_RC, len(sides_NC), axis=1)])

    def of_weights(weight_RN: Floats) -> Floats:
        return change([statistic.of(weight_RN, side_NC[:, 1:]) for side_NC in sides_NC])

    with np.errstate(invalid="ignore", divide="ignore"):
        if isinstance(statistic, Weighted):
            value = float(of_weights(np.ones((1, len(unit_N))))[0])
            number_N, units = unit_N.factorize()
            low, high = bootstrap(len(units), lambda w_RU: of_weights(w_RU[:, number_N]), len(number_N))
        else:
            sums_UC = _sums(np.concatenate(sides_NC, axis=1), unit_N)
            value = float(of_sums(sums_UC.sum(0, keepdims=True))[0])
            low, high = bootstrap(len(sums_UC), lambda w_RU: of_sums(w_RU @ sums_UC))
    # Resamples that are all alike say that units agree, not that the number is certain.
    return value, (low, high) if high - low > 1e-12 else NO_INTERVAL


def _around(value: float, units: int, *, low: float, scale: float) -> tuple[float, float]:
    """Both ends of an exact interval around a value in [low, 1]."""
    from metrics.intervals import unseen_share

    reach = unseen_share(units) * scale
    return max(low, value - reach), min(1.0, value + reach)
