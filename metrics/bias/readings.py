"""Further analyses: which subject of a pair a model prefers, and whether a metric finds a planted
bias.

Shape letters: M and N groups, V the four variants, S the two subjects of a group, C cells.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
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
    """Sign of the mean of C over templates, per pair and attribute. Source: Zhao et al. 2021,
    appendix B.2.

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
    subjects = torch.cat((subject_MS, subject_NS))
    attributes = torch.cat((attribute_M, attribute_N))
    cells = torch.cat((subjects.sort(dim=1).values, attributes[:, None]), dim=1)
    known, number = cells.unique(dim=0, return_inverse=True)
    side = torch.where(subjects[:, 0] < subjects[:, 1], 1.0, -1.0).to(c_M.dtype)
    (number_M, number_N), (side_M, side_N) = (
        value.tensor_split([len(c_M)]) for value in (number, side)
    )
    sum_C = c_M.new_zeros(len(known)).index_add_(0, number_M, c_M * side_M)
    c_N = sum_C[number_N] * side_N
    return DominantSubject((c_N < 0).long(), (c_N == 0) & torch.isin(number_N, number_M))


def pushed_subject(dominant_N: Tensor) -> Tensor:
    """Return the subject that the adversarial loss raises in each variant: (N,) to (N, 4), values 0
    or 1.

    It is the dominant one for the question, the other one for its negation. Source: Zhao et al.
    2021, appendix B.2, and the authors' code.
    """
    return torch.stack((dominant_N, 1 - dominant_N, dominant_N, 1 - dominant_N), dim=1)


def planted_correlation(gamma_C: Iterable[float], planted_C: Iterable[float]) -> float:
    """Spearman correlation in [-1, 1] of measured gamma with the planted preference, over all
    (subject, category) cells; NaN for fewer than two cells or only ties.

    Source: this project's planted control; `gamma` as in UnQover section 4.3.

    Args:
        gamma_C: measured gamma(subject, category), shape (C,).
        planted_C: planted preference, larger for the subject that should get the attribute more
            often, shape (C,). (Negate a rank in which 1 is the most preferred.)
    """
    if min(len({*gamma_C}), len({*planted_C})) < 2:
        return math.nan
    return float(spearmanr(gamma_C, planted_C).statistic)
