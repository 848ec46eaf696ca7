"""Does a bias metric find the bias that was planted? Rank correlation of the two.

Shape letters: X subjects, C categories.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


class PlantedCorrelation(NamedTuple):
    """Spearman's rank correlation in [-1, 1]; NaN where fewer than two cells, or only ties, were seen."""

    by_category_C: NDArray[np.float64]
    n_C: NDArray[np.int64]
    """Subjects behind each category's correlation."""
    pooled: float
    """Over all (subject, category) cells at once."""
    n: int


def planted_correlation(gamma_XC: ArrayLike, planted_XC: ArrayLike) -> PlantedCorrelation:
    """Spearman correlation of measured gamma with the planted preference, per category and pooled.

    Source: this project's planted control; `gamma` as in UnQover section 4.3.

    Args:
        gamma_XC: measured gamma(x, category), shape (X, C); NaN where unseen.
        planted_XC: planted preference, larger for the subject that was to get the attribute more often,
            shape (X, C); NaN where nothing was planted. (A rank with 1 = most preferred: pass it negated.)

    Raises:
        ValueError: not two tables of one shape.
    """
    gamma, planted = np.asarray(gamma_XC, dtype=np.float64), np.asarray(planted_XC, dtype=np.float64)
    if gamma.ndim != 2 or gamma.shape != planted.shape:
        raise ValueError(f"expected two tables of one shape (X, C), got {gamma.shape} and {planted.shape}")
    seen_XC = ~(np.isnan(gamma) | np.isnan(planted))
    by_category = [spearman(gamma[seen_X, c], planted[seen_X, c]) for c, seen_X in enumerate(seen_XC.T)]
    return PlantedCorrelation(
        by_category_C=np.array(by_category, dtype=np.float64),
        n_C=seen_XC.sum(axis=0),
        pooled=spearman(gamma[seen_XC], planted[seen_XC]),
        n=int(seen_XC.sum()),
    )


def spearman(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Spearman's rho; NaN for fewer than two points or a constant side."""
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    from scipy.stats import spearmanr  # here: half a second that only the planted control spends

    return float(spearmanr(a, b).statistic)
