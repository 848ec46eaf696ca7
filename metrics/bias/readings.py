"""Other readings: which subject of a pair a model prefers, and whether a metric finds a planted bias.

Shape letters: N groups, V the four variants, S the two subjects of a group, P pairs, A attributes,
X subjects, C categories.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from metrics.bias.sums import pair_index


class DominantSubject(NamedTuple):
    """Which of a group's two subjects a model prefers for the attribute."""

    index_N: Tensor
    """0 or 1, a position in `subject_NS`; 0 for a tie."""
    tie_N: Tensor
    """True where C sums to exactly 0; count them."""
    seen_N: Tensor
    """False where the sums hold no group of this pair and attribute (the index is then 0)."""


def dominant_subject(
    c_PA: Tensor, count_PA: Tensor, subject_NS: Tensor, attribute_N: Tensor, num_subjects: int
) -> DominantSubject:
    """The sign of the mean over templates of C, per pair and attribute. Source: LEI spec 3.5, 4.6 item 3.

    Args:
        c_PA, count_PA: one class of `BiasSums.c_KPA` and `.count_KPA` (or several summed), shape (P, A);
            the paper takes predictions without interventions.
        subject_NS: ids of x1 and x2 in any order, shape (N, 2).
        attribute_N: ids, shape (N,).
        num_subjects: X, that the sums were made for.
    """
    pair_N = pair_index(subject_NS.min(dim=1).values, subject_NS.max(dim=1).values, num_subjects)
    side_N = torch.where(subject_NS[:, 0] < subject_NS[:, 1], 1, -1)
    c_N = c_PA[pair_N, attribute_N] * side_N
    seen_N = count_PA[pair_N, attribute_N] > 0
    return DominantSubject(index_N=(c_N < 0).long(), tie_N=(c_N == 0) & seen_N, seen_N=seen_N)


def pushed_subject(dominant_N: Tensor) -> Tensor:
    """The subject that the adversarial loss raises in each variant: shape (N,) to (N, 4), values 0 or 1.

    The dominant one for the question, the other one for its negation. Source: LEI spec 3.5.
    """
    return torch.stack((dominant_N, 1 - dominant_N, dominant_N, 1 - dominant_N), dim=1)


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
