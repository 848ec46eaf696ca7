"""Statistical tests of the confusion probes (probes spec B4), by scipy.

p is NaN where the data admit no test.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
from scipy import stats

Side = Literal["two-sided", "greater", "less"]


class Significance(NamedTuple):
    """Statistic, p-value and number of observations."""

    statistic: float
    p: float
    n: int


def t_against(values: np.ndarray, expected: float, side: Side = "two-sided") -> Significance:
    """One-sample t of the mean; NaN for fewer than two values, or for values that are all alike."""
    x = np.asarray(values, dtype=np.float64)
    if len(x) < 2 or np.ptp(x) <= 1e-12 * max(1.0, float(np.abs(x).max())):
        return Significance(math.nan, math.nan, len(x))
    found = stats.ttest_1samp(x, expected, alternative=side)
    return Significance(float(found.statistic), float(found.pvalue), len(x))


def t_paired(first: np.ndarray, second: np.ndarray, side: Side = "two-sided") -> Significance:
    """Paired t of first - second; `greater`: the first is."""
    return t_against(np.asarray(first) - np.asarray(second), 0.0, side)


def t_welch(first: np.ndarray, second: np.ndarray) -> Significance:
    """Two-sided t of two samples of their own variances."""
    if min(len(first), len(second)) < 2 or (np.ptp(first) == 0 and np.ptp(second) == 0):
        return Significance(math.nan, math.nan, len(first) + len(second))
    found = stats.ttest_ind(first, second, equal_var=False)
    return Significance(float(found.statistic), float(found.pvalue), len(first) + len(second))


def binomial(hits: int, n: int, chance: float) -> Significance:
    """Two-sided exact binomial of a share against chance; the statistic is the share."""
    if not n:
        return Significance(math.nan, math.nan, 0)
    return Significance(hits / n, float(stats.binomtest(hits, n, chance).pvalue), n)


def mcnemar(before: np.ndarray, after: np.ndarray) -> Significance:
    """Exact McNemar of right before and right after: a binomial of 1/2 among those that changed.

    The statistic is the number that turned wrong minus the number that turned right.
    """
    lost = int((before & ~after).sum())
    won = int((~before & after).sum())
    p = float(stats.binomtest(lost, lost + won, 0.5).pvalue) if lost + won else 1.0
    return Significance(float(lost - won), p, len(before))
