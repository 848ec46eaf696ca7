"""95 % intervals: percentile bootstraps over independent units, which keep all rows of a unit together.

The draws depend on SEED and the number of units only, so that equal data give equal ends.

Shape letters: N values, R resamples, U units, C columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SEED = 0
RESAMPLES = 2000
LEVEL = 0.95
BLOCK = 4_000_000
"""Counts in one block of resamples: 32 MB as float64."""
KEPT = 50_000_000
"""Counts that are kept for one number of units: 100 MB as uint16."""

Statistic = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Sums (R, C) to statistics (R,)."""


class Interval(NamedTuple):
    """The ends of a 95 % interval; NaN where there is none."""

    low: float
    high: float


NONE = Interval(math.nan, math.nan)


def bootstrap(sums_UC: NDArray[np.float64], statistic: Statistic) -> Interval:
    """The percentile interval of a statistic of sums over units.

    Args:
        sums_UC: what each unit adds to each sum.
        statistic: of resampled sums (R, C); NaN where a resample has none, which does not count.
    """
    if len(sums_UC) < 2:
        return NONE
    return percentiles(np.concatenate([statistic(w_RU @ sums_UC) for w_RU in resamples(len(sums_UC))]))


def weighted_interval(unit_N: NDArray[np.int64], statistic: Statistic) -> Interval:
    """The interval of a statistic of values that count more or less often; NaN where there is one unit.

    Args:
        unit_N: which values belong together: numbers 0 to U - 1.
        statistic: from how often each value counts (R, N) to the statistic (R,); NaN does not count.
    """
    units = int(unit_N.max()) + 1
    if units < 2:
        return NONE
    drawn = [statistic(w_RU[:, unit_N]) for w_RU in resamples(units, width=len(unit_N))]
    return percentiles(np.concatenate(drawn))


def resamples(units: int, count: int = RESAMPLES, width: int = 0) -> Iterator[NDArray[np.float64]]:
    """How often each of `units` units is drawn in each resample: blocks (R, U), `count` rows in all.

    `width` bounds the blocks further: numbers that the caller computes for each resample.
    """
    size = max(1, min(count, BLOCK // max(units, width)))
    if units * count <= KEPT:
        kept_RU = _kept(units, count)
        yield from (kept_RU[start : start + size].astype(np.float64) for start in range(0, count, size))
        return
    draws = _draws(units, count)
    while block := list(islice(draws, size)):
        yield np.stack(block).astype(np.float64)


def _draws(units: int, count: int) -> Iterator[NDArray[np.int64]]:
    draw, size = np.random.default_rng(SEED), max(1, 2**16 // units)  # many at a time where units are few
    for start in range(0, count, size):
        drawn_RU = draw.integers(0, units, (min(size, count - start), units))
        drawn_RU += units * np.arange(len(drawn_RU))[:, None]
        yield from np.bincount(drawn_RU.ravel(), minlength=drawn_RU.size).reshape(drawn_RU.shape)


@lru_cache(maxsize=4)
def _kept(units: int, count: int) -> NDArray[np.uint16]:
    """The same draws in one array (R, U): a report needs them in each of its cells."""
    return np.stack([row_U.astype(np.uint16) for row_U in _draws(units, count)])


def unseen_share(units: int) -> float:
    """The largest probability of a value that none of so many units shows: the exact (Clopper-Pearson) upper
    end of the 95 % interval of 0 of `units`.

    >>> round(unseen_share(21), 2)
    0.16
    """
    return float(1 - ((1 - LEVEL) / 2) ** (1 / units))


def percentiles(statistics_R: NDArray[np.float64]) -> Interval:
    """The middle 95 % of resampled statistics."""
    low, high = percentiles_of_each(statistics_R[:, None])
    return Interval(float(low[0]), float(high[0]))


def percentiles_of_each(
    statistics_RC: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The same of every column: (R, ...) to the low and the high ends (...)."""
    ordered = np.where(np.isfinite(statistics_RC), statistics_RC, np.nan)
    ordered.sort(axis=0)  # NaN come last
    last = np.isfinite(ordered).sum(axis=0) - 1
    ends = []
    for level in ((1 - LEVEL) / 2, (1 + LEVEL) / 2):
        place = np.maximum(level * last, 0)
        below, above = (round_(place).astype(int)[None] for round_ in (np.floor, np.ceil))
        low, high = (np.take_along_axis(ordered, at, axis=0)[0] for at in (below, above))
        ends.append(low + (high - low) * (place - np.floor(place)))
    return ends[0], ends[1]
