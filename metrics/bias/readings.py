"""Further analyses: which subject of a pair a model prefers, and whether a metric finds a planted
bias.

Shape letters: M and N groups, V the four variants, S the two subjects of a group, A attributes,
X subjects, C categories.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.stats import spearmanr
from torch import Tensor


class DominantSubject(NamedTuple):
    """Which of a group's two subjects a model prefers for the attribute."""

    index_N: Tensor
    """0 or 1, a position in `subject_NS`; 0 for a tie."""
    tie_N: Tensor
    """True where C sums to exactly 0; callers count these."""


def dominant_subject(
    c_M: Tensor, subject_MS: Tensor, attribute_M: Tensor, subject_NS: Tensor, attribute_N: Tensor
) -> DominantSubject:
    """Sign of the mean of C over templates, per pair and attribute. Source: LEI spec 3.5, 4.6 item
    3.

    Memory grows with the groups, not with the pairs that their subjects could form, which would be
    millions where every group draws its own names.

    Args:
        c_M: C of M groups, from the perspective of the first subject; the paper takes predictions
            without interventions.
        subject_MS: ids of their subjects x1 and x2 in any order, shape (M, 2).
        attribute_M: ids, shape (M,).
        subject_NS: ids of the subjects of the N groups to return, in any order, shape (N, 2).
        attribute_N: ids, shape (N,).
    """
    subject_S = torch.cat((subject_MS, subject_NS))
    cell = torch.cat(
        (subject_S.sort(dim=1).values, torch.cat((attribute_M, attribute_N))[:, None]), dim=1
    )
    number = cell.unique(dim=0, return_inverse=True)[1]
    number_M, number_N = number[: len(c_M)], number[len(c_M) :]
    side = torch.where(subject_S[:, 0] < subject_S[:, 1], 1.0, -1.0).to(c_M.dtype)
    sums = c_M.new_zeros(int(number.max()) + 1).index_add_(0, number_M, c_M * side[: len(c_M)])
    c_N = sums[number_N] * side[len(c_M) :]
    return DominantSubject((c_N < 0).long(), (c_N == 0) & torch.isin(number_N, number_M))


def pushed_subject(dominant_N: Tensor) -> Tensor:
    """Return the subject that the adversarial loss raises in each variant: (N,) to (N, 4), values 0
    or 1.

    It is the dominant one for the question, the other one for its negation. Source: LEI spec 3.5.
    """
    return torch.stack((dominant_N, 1 - dominant_N, dominant_N, 1 - dominant_N), dim=1)


def planted_correlation(gamma_XC: ArrayLike, planted_XC: ArrayLike) -> float:
    """Spearman correlation in [-1, 1] of measured gamma with the planted preference, over all
    (subject, category) cells; NaN for fewer than two cells or only ties.

    Source: this project's planted control; `gamma` as in UnQover section 4.3.

    Args:
        gamma_XC: measured gamma(x, category), shape (X, C); NaN where unseen.
        planted_XC: planted preference, larger for the subject that should get the attribute more
            often, shape (X, C); NaN where nothing was planted. (Negate a rank in which 1 is the
            most preferred.)
    """
    gamma, planted = (
        np.asarray(gamma_XC, dtype=np.float64),
        np.asarray(planted_XC, dtype=np.float64),
    )
    seen_XC = ~(np.isnan(gamma) | np.isnan(planted))
    a, b = gamma[seen_XC], planted[seen_XC]
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return math.nan
    return float(spearmanr(a, b).statistic)
