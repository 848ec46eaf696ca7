"""Two more readings of the same sums: who dominates a pair, and bias between clusters of subjects.

Shape letters: N groups, V the four variants, S the two subjects of a group, K classes, X subjects, P pairs,
A attributes, L clusters.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from metrics.bias.sums import mean_where_counted, pair_index, pair_members


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


class ClusterBias(NamedTuple):
    """Bias between clusters of subjects, per class and attribute; NaN where n = 0."""

    gamma_KLA: Tensor
    """Mean C of the cluster's subjects against those of other clusters, in [-1, 1]."""
    eta_KLA: Tensor
    """Mean sign of C, likewise."""
    n_KLA: Tensor


def cluster_bias(
    c_KPA: Tensor, sign_KPA: Tensor, count_KPA: Tensor, cluster_X: Tensor, num_clusters: int
) -> ClusterBias:
    """gamma(F, a) = mean of C(F, M) over all female-male pairs, and the like for any clusters.

    Source: UnQover section 4.3 and its gender tables, LEI spec 2.3.

    Args:
        c_KPA, sign_KPA, count_KPA: as in `BiasSums`.
        cluster_X: cluster id of each subject, -1 for none, shape (X,). Pairs inside one cluster do not count.
        num_clusters: L.

    Raises:
        ValueError: a cluster id outside -1..L-1.
    """
    if bool(((cluster_X < -1) | (cluster_X >= num_clusters)).any()):
        raise ValueError(f"cluster_X: ids lie in -1..{num_clusters - 1}")
    i_P, j_P = pair_members(len(cluster_X), cluster_X.device)
    first_P, second_P = cluster_X[i_P], cluster_X[j_P]
    across_P = (first_P != second_P) & (first_P >= 0) & (second_P >= 0)
    first, second = first_P[across_P], second_P[across_P]

    def to_clusters(value_KPA: Tensor, sign: int) -> Tensor:
        value = value_KPA[:, across_P]
        empty_KLA = value.new_zeros(value.shape[0], num_clusters, value.shape[2])
        return empty_KLA.index_add_(1, first, value).index_add_(1, second, value, alpha=sign)

    n_KLA = to_clusters(count_KPA, 1)
    return ClusterBias(
        gamma_KLA=mean_where_counted(to_clusters(c_KPA, -1), n_KLA),
        eta_KLA=mean_where_counted(to_clusters(sign_KPA, -1), n_KLA),
        n_KLA=n_KLA,
    )
