"""Group bias of a question-answering model as a torchmetrics metric.

Shape letters: N groups, K classes, X subjects, A attributes.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from metrics.bias.sums import BiasResult, BiasSums, accumulate, aggregate, empty_sums
from metrics.sum_metric import SumMetric


class GroupBias(SumMetric):
    """Bias per class over all groups seen, on all processes: `BiasResult`, `BiasSums` behind it.

    State: 32 bytes for each class, pair and attribute (87 MB for 140 subjects, 70 attributes, 4 classes).

    Args:
        num_classes: K, for example 4 for ethical, adversarial, irrelevant, none.
        num_subjects: X, ids 0..X-1 in any order.
        num_attributes: A.

    Example:
        >>> metric = GroupBias(num_classes=2, num_subjects=2, num_attributes=1)
        >>> score_NVS = torch.tensor([[[.56, .30], [.45, .20], [.28, .36], [.15, .56]]])
        >>> zero = torch.tensor([0])
        >>> metric.update(score_NVS, class_N=zero, subject_NS=torch.tensor([[0, 1]]), attribute_N=zero)
        >>> round(metric.compute().mu_K[0].item(), 6)
        0.085
    """

    higher_is_better = None

    def __init__(self, num_classes: int, num_subjects: int, num_attributes: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_subjects = num_subjects
        shapes = empty_sums(num_classes, num_subjects, num_attributes, device="meta")
        for name, like in zip(BiasSums._fields, shapes, strict=True):
            self.add_sum(name, like.shape, like.dtype)

    @property
    def sums(self) -> BiasSums:
        """The states, as the functions of this room take them."""
        return BiasSums(*(getattr(self, name) for name in BiasSums._fields))

    def update(self, score_NVS: Tensor, class_N: Tensor, subject_NS: Tensor, attribute_N: Tensor) -> None:
        """Add N groups.

        Args:
            score_NVS: S(x) = sqrt(p_start p_end) in [0, 1], any float type, last axis by subject, (N, 4, 2).
            class_N: class ids, shape (N,).
            subject_NS: ids of (x1, x2) in the order of the scores' last axis, shape (N, 2).
            attribute_N: attribute ids, shape (N,).
        """
        accumulate(self.sums, score_NVS, class_N, subject_NS, attribute_N, self.num_subjects)

    def compute(self) -> BiasResult:
        """Aggregates of everything seen; NaN with n = 0 for a class without groups."""
        return aggregate(self.sums, self.num_subjects)
