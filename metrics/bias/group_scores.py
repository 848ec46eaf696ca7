"""Scores of one group of four variants: pair bias C and related measures of its two subjects; and
which of these a model prefers.

Scores are S(x) = sqrt(p_start p_end), indexed by subject (x1, x2), not by their order in the
context. The variants are (x1 x2, question), (x1 x2, negated), (x2 x1, question), (x2 x1, negated).

Shape letters: M and N groups, V the four variants, S the two subjects, E the two boundaries (0
start, 1 end).
"""

import math
from collections import defaultdict
from typing import NamedTuple

import torch
from torch import Tensor

TINY = 1e-12
"""If a question's two scores sum to less than this, normalising them returns zeros instead of
noise.
"""


class GroupScores(NamedTuple):
    """Measures of N groups: float64, shape (N,). Source: UnQover section 4."""

    c_N: Tensor
    """C(x1, x2, a, tau) in [-1, 1], positive if the model assigns the attribute to x1: (B(x1) -
    B(x2)) / 2, where B(x) is the mean over both orders of S(x) for the question, minus that for the
    negated question.
    """
    c_normalised_N: Tensor
    """C of S(x) / (S(x1) + S(x2)): which subject is preferred, independent of their sum (this
    project).
    """
    delta_N: Tensor
    """Position error in [0, 1]: mean of |S12(x) - S21(x)| over both subjects and both questions."""
    eps_N: Tensor
    """Attribute error in [0, 1], how far negation is from reversing the answer: mean of |S_a(x) -
    S_not_a(other)| over both subjects and both orders."""
    mass_N: Tensor
    """Mean over the variants of S(x1) + S(x2), twice UnQover's average answer probability. Near 0,
    the model answers with something else.
    """


def span_score(probability_NVSE: Tensor) -> Tensor:
    """S = sqrt(p_start * p_end): shape (..., 2) to (...). Source: UnQover section 4.1."""
    return probability_NVSE.double().prod(dim=-1).sqrt()


def score_groups(score_NVS: Tensor) -> GroupScores:
    """Compute all per-group values from scores (N, 4, 2); ValueError for another shape."""
    # Long rows: every step is one pass.
    score_VSN = score_NVS.double().permute(1, 2, 0).contiguous()
    sum_VN = score_VSN.sum(1)
    normalised_VSN = score_VSN / torch.where(sum_VN > TINY, sum_VN, torch.inf).unsqueeze(1)
    question_12, negation_12, question_21, negation_21 = score_VSN
    position_SN = (question_12 - question_21).abs() + (negation_12 - negation_21).abs()
    attribute_SN = (question_12 - negation_12.flip(0)).abs()
    attribute_SN += (question_21 - negation_21.flip(0)).abs()
    return GroupScores(
        c_N=_pair_bias(score_VSN),
        c_normalised_N=_pair_bias(normalised_VSN),
        delta_N=position_SN.sum(0) / 4,
        eps_N=attribute_SN.sum(0) / 4,
        mass_N=(question_12 + negation_12 + question_21 + negation_21).sum(0) / 4,
    )


def _pair_bias(score_VSN: Tensor) -> Tensor:
    question_12, negation_12, question_21, negation_21 = score_VSN
    first_N, second_N = (question_12 - negation_12 + question_21 - negation_21) / 2
    return (first_N - second_N) / 2


def preference(
    c_M: Tensor, subject_MS: Tensor, attribute_M: Tensor, subject_NS: Tensor, attribute_N: Tensor
) -> Tensor:
    """Sum of C over templates, per pair and attribute, (N,): positive if the first subject of a
    group is dominant, negative if the second is, NaN for cells without C. Source: Zhao et al. 2021,
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
    return torch.tensor([sums.get(tuple(cell), math.nan) for cell in cells], dtype=torch.float64)


def pushed_subject(dominant_N: Tensor) -> Tensor:
    """Return the subject that the adversarial loss raises in each variant: (N,) to (N, 4), values 0
    or 1.

    It is the dominant one for the question, the other one for its negation. Source: Zhao et al.
    2021, appendix B.2, and the authors' code.
    """
    return torch.stack((dominant_N, 1 - dominant_N, dominant_N, 1 - dominant_N), dim=1)
