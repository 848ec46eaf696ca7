"""95 % intervals: percentile bootstraps over independent units, which keep all rows of a unit together.

The draws depend on SEED and the number of units only, so that equal data give equal ends.

Shape letters: N values, R resamples, U units, C columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

SEED = 0
RESAMPLES = 1000
LEVEL = 0.95
BLOCK = 4_000_000
"""Counts that are drawn at a time: 32 MB."""

Statistic = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Sums (R, C) to statistics (R,)."""


class Interval(NamedTuple):
    """The ends of a 95 % interval; NaN where there is none."""

    low: float
    high: float


NONE = Interval(math.nan, math.nan)


def mean_interval(values: Sequence[float], units: Sequence[Any]) -> tuple[float, Interval, int]:
    """The mean over all values, its bootstrap interval over units, and how many values there are.

    >>> mean_interval([0.0, 1.0], ["a", "b"])
    (0.5, Interval(low=0.0, high=1.0), 2)
    """
    if not len(values):
        return math.nan, NONE, 0
    value_N = np.asarray(values, dtype=np.float64)
    number: dict[Any, int] = {}
    unit_N = np.array([number.setdefault(unit, len(number)) for unit in units])
    sums_UC = np.stack([np.bincount(unit_N, value_N), np.bincount(unit_N).astype(float)], axis=1)
    return float(value_N.mean()), ratio_interval(sums_UC), len(value_N)


def ratio_interval(sums_UC: NDArray[np.float64]) -> Interval:
    """The interval of sum(column 0) / sum(column 1) over units."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return bootstrap(sums_UC, lambda total_RC: total_RC[:, 0] / total_RC[:, 1])


def bootstrap(sums_UC: NDArray[np.float64], statistic: Statistic) -> Interval:
    """The percentile interval of a statistic of sums over units.

    Args:
        sums_UC: what each unit adds to each sum.
        statistic: of resampled sums (R, C); NaN where a resample has none, which does not count.
    """
    if len(sums_UC) < 2:
        return NONE
    return percentiles(np.concatenate([statistic(w_RU @ sums_UC) for w_RU in resamples(len(sums_UC))]))


def resamples(units: int) -> Iterator[NDArray[np.float64]]:
    """How often each of `units` units is drawn in each resample: blocks (R, U), RESAMPLES rows in all."""
    draw = np.random.default_rng(SEED)
    size = max(1, min(RESAMPLES, BLOCK // units))
    for start in range(0, RESAMPLES, size):
        rows = min(size, RESAMPLES - start)
        yield draw.multinomial(units, np.full(units, 1 / units), size=rows).astype(np.float64)


def percentiles(statistics_R: NDArray[np.float64]) -> Interval:
    """The middle 95 % of resampled statistics."""
    kept = statistics_R[np.isfinite(statistics_R)]
    if not len(kept):
        return NONE
    low, high = np.quantile(kept, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high))
