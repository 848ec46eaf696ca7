"""Does a bias metric find the bias that was planted? Rank correlation of the two.

Shape letters: X subjects, C categories.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike


class PlantedCorrelation(NamedTuple):
    """Spearman's rank correlation in [-1, 1]; NaN where fewer than two cells, or only ties, were seen."""

    rho: float
    n: int
    """Cells (subject, category) behind it."""


def planted_correlation(gamma_XC: ArrayLike, planted_XC: ArrayLike) -> PlantedCorrelation:
    """Spearman correlation of measured gamma with the planted preference, over all (subject, category) cells.

    Source: this project's planted control; `gamma` as in UnQover section 4.3.

    Args:
        gamma_XC: measured gamma(x, category), shape (X, C); NaN where unseen.
        planted_XC: planted preference, larger for the subject that was to get the attribute more often,
            shape (X, C); NaN where nothing was planted. (A rank with 1 = most preferred: pass it negated.)

    Raises:
        ValueError: two different shapes.
    """
    gamma, planted = np.asarray(gamma_XC, dtype=np.float64), np.asarray(planted_XC, dtype=np.float64)
    if gamma.shape != planted.shape:
        raise ValueError(f"expected two tables of one shape (X, C), got {gamma.shape} and {planted.shape}")
    seen_XC = ~(np.isnan(gamma) | np.isnan(planted))
    a, b = gamma[seen_XC], planted[seen_XC]
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return PlantedCorrelation(math.nan, len(a))
    from scipy.stats import rankdata  # here: half a second that only the planted control spends

    return PlantedCorrelation(float(np.corrcoef(rankdata(a), rankdata(b))[0, 1]), len(a))
