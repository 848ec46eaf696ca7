"""Further analyses: which subject of a pair a model prefers, and whether a metric finds a planted
bias.

Shape letters: M and N groups, V the four variants, S the two subjects of a group, C cells.
"""

import math
from collections import defaultdict
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

    Args:
        c_M: C of M groups, from the perspective of the first subject; the paper takes predictions
            without interventions.
        subject_MS: ids of their subjects x1 and x2 in any order, shape (M, 2).
        attribute_M: ids, shape (M,).
        subject_NS: ids of the subjects of the N groups to return, in any order, shape (N, 2).
        attribute_N: ids, shape (N,).
    """
    sums = defaultdict[tuple[int, ...], float](float)
    groups = (c_M.tolist(), subject_MS.tolist(), attribute_M.tolist())
    for c, (first, second), attribute in zip(*groups, strict=True):
        sums[first, second, attribute] += c
        sums[second, first, attribute] -= c
    cells = torch.cat((subject_NS, attribute_N[:, None]), dim=1).tolist()
    sum_N = [sums.get(tuple(cell), math.nan) for cell in cells]
    c_N = torch.tensor(sum_N, dtype=torch.float64)
    return DominantSubject((c_N < 0).long(), c_N == 0)


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
