"""95 % intervals: percentile bootstraps over independent units; the rows of a unit stay together.

The draws depend only on SEED and the number of units, so equal data give equal intervals.

Shape letters: R resamples, U units.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import islice

import numpy as np
from numpy.typing import NDArray

SEED = 0
RESAMPLES = 2000
LEVEL = 0.95
BLOCK = 4_000_000
"""Counts per block of resamples: 32 MB as float64."""
KEPT = 50_000_000
"""Counts cached per number of units: 100 MB as uint16."""

Floats = NDArray[np.float64]


def bootstrap(units: int, statistic: Callable[[Floats], Floats], width: int = 0) -> tuple[float, float]:
    """The percentile interval of a statistic over units; NaN for a single unit.

    Args:
        units: number of units.
        statistic: maps how often each unit counts, (R, U), to (R,); NaN for resamples where it is undefined,
            which are ignored.
        width: numbers that the statistic computes for each resample, if more than `units`.
    """
    if units < 2:
        return math.nan, math.nan
    low, high = percentiles(np.concatenate([statistic(w_RU) for w_RU in resamples(units, width=width)]))
    return float(low), float(high)


def resamples(units: int, count: int = RESAMPLES, width: int = 0) -> Iterator[Floats]:
    """Yield how often each of `units` units is drawn in each resample: blocks (R, U), `count` rows in all.

    `width`, the numbers that the caller computes per resample, limits the block size further.
    """
    drawn = iter(_kept(units, count)) if units * count <= KEPT else _draws(units, count)
    while block := list(islice(drawn, max(1, BLOCK // max(units, width)))):
        yield np.stack(block).astype(np.float64)


def _draws(units: int, count: int) -> Iterator[NDArray[np.int64]]:
    draw = np.random.default_rng(SEED)
    for _ in range(count):
        yield np.bincount(draw.integers(0, units, units), minlength=units)


@lru_cache(maxsize=4)
def _kept(units: int, count: int) -> NDArray[np.uint16]:
    """The same draws in one array (R, U): a report needs them in each of its cells."""
    return np.stack([row_U.astype(np.uint16) for row_U in _draws(units, count)])


def unseen_share(units: int) -> float:
    """The largest probability of an event that none of so many units shows: the exact (Clopper-Pearson)
    upper end of the 95 % interval of 0 of `units`.

    >>> round(unseen_share(21), 2)
    0.16
    """
    return float(1 - ((1 - LEVEL) / 2) ** (1 / units))


def percentiles(statistics_R: Floats) -> Floats:
    """The ends of the middle 95 % of resampled statistics: (R, ...) to (2, ...)."""
    defined_R = np.where(np.isfinite(statistics_R), statistics_R, np.nan)
    with warnings.catch_warnings(action="ignore"):  # all-NaN columns
        return np.asarray(np.nanquantile(defined_R, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0))
