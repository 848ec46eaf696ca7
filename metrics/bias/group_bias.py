"""Group bias of a question-answering model as a torchmetrics metric.

Shape letters: N groups, K classes, X subjects, A attributes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from interventune.metrics.bias.group_scores import score_groups
from interventune.metrics.bias.sums import BiasResult, BiasSums, aggregate
from interventune.metrics.sum_metric import SumMetric


def pair_index(low: Tensor, high: Tensor, num_subjects: int) -> Tensor:
    """Row-major index in the triangle i < j: (0, 1), (0, 2), ..., (1, 2), ...; shapes are kept."""
    return low * (2 * num_subjects - low - 1) // 2 + high - low - 1


class GroupBias(SumMetric):
    """Bias per class over all groups seen, on all processes: a `BiasResult`, computed from
    `BiasSums`.

    State: 32 bytes for each class, pair and attribute (87 MB for 140 subjects, 70 attributes, 4
    classes).

    Args:
        num_classes: K, for example 4 for ethical, adversarial, irrelevant, none.
        num_subjects: X, ids 0..X-1 in any order.
        num_attributes: A.

    Example:
        >>> metric = GroupBias(num_classes=2, num_subjects=2, num_attributes=1)
        >>> score_NVS = torch.tensor([[[.56, .30], [.45, .20], [.28, .36], [.15, .56]]])
        >>> zero = torch.tensor([0])
        >>> metric.update(score_NVS, zero, torch.tensor([[0, 1]]), zero)
        >>> round(metric.compute().mu_K[0].item(), 6)
        0.085
    """

    higher_is_better = None

    def __init__(
        self, num_classes: int, num_subjects: int, num_attributes: int, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.num_subjects, self.num_attributes = num_subjects, num_attributes
        cells = (num_classes, num_subjects * (num_subjects - 1) // 2, num_attributes)
        for name in BiasSums._fields:
            dtype = torch.int64 if name == "count_KPA" else torch.float64
            self.add_sum(name, cells if name.endswith("_KPA") else cells[:1], dtype)

    @property
    def sums(self) -> BiasSums:
        """Return the states as `BiasSums`."""
        return BiasSums(*(getattr(self, name) for name in BiasSums._fields))

    def update(
        self, score_NVS: Tensor, class_N: Tensor, subject_NS: Tensor, attribute_N: Tensor
    ) -> None:
        """Add N groups.

        Args:
            score_NVS: S(x) = sqrt(p_start p_end) in [0, 1], any float type, last axis: subject, (N,
                4, 2).
            class_N: class ids, shape (N,).
            subject_NS: ids of (x1, x2) in the order of the scores' last axis, shape (N, 2).
            attribute_N: attribute ids, shape (N,).
        """
        sums = self.sums
        group, (first_N, second_N) = score_groups(score_NVS), subject_NS.unbind(1)
        side_N = torch.where(first_N < second_N, 1.0, -1.0).double()
        pair_N = pair_index(
            torch.minimum(first_N, second_N), torch.maximum(first_N, second_N), self.num_subjects
        )
        cell_N = (class_N * sums.c_KPA.shape[1] + pair_N) * self.num_attributes + attribute_N
        for total, value_N in (
            (sums.c_KPA, group.c_N * side_N),
            (sums.sign_KPA, group.c_N.sign() * side_N),
            (sums.c_normalised_KPA, group.c_normalised_N * side_N),
            (sums.count_KPA, torch.ones_like(cell_N)),
        ):
            total.view(-1).scatter_add_(0, cell_N, value_N)
        for total, value_N in (
            (sums.abs_c_K, group.c_N.abs()),
            (sums.delta_K, group.delta_N),
            (sums.eps_K, group.eps_N),
            (sums.mass_K, group.mass_N),
        ):
            total.scatter_add_(0, class_N, value_N)

    def compute(self) -> BiasResult:
        """Aggregate everything seen; NaN with n = 0 for a class without groups."""
        return aggregate(self.sums, self.num_subjects)
