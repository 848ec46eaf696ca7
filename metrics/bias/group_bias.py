"""Group bias of a question-answering model as a torchmetrics metric (UnQover's and LEI's measures).

Shape letters: N groups, V the four variants, S the two subjects of a group, K classes, X subjects, P pairs,
A attributes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from metrics.bias.sums import BiasResult, BiasSums, accumulate, aggregate, check_ids, empty_sums, parts
from metrics.sum_metric import SumMetric, check_shapes


class GroupBias(SumMetric):
    """Bias per class over all groups seen, on all processes: `BiasResult`, `BiasSums` behind it.

    State: 40 bytes for each class, pair and attribute (109 MB for 140 subjects, 70 attributes, 4 classes).

    Args:
        num_classes: K, for example 4 for ethical, adversarial, irrelevant, none.
        num_subjects: X, ids 0..X-1 in any order.
        num_attributes: A.
        validate_ids: check every batch's ids (one wait for the device per update).

    Example:
        >>> metric = GroupBias(num_classes=1, num_subjects=2, num_attributes=1)
        >>> score_NVS = torch.tensor([[[.56, .30], [.45, .20], [.28, .36], [.15, .56]]])
        >>> zero = torch.tensor([0])
        >>> metric.update(score_NVS, class_N=zero, subject_NS=torch.tensor([[0, 1]]), attribute_N=zero)
        >>> round(metric.compute().mu_K[0].item(), 6)
        0.085
    """

    higher_is_better = None

    def __init__(
        self,
        num_classes: int,
        num_subjects: int,
        num_attributes: int,
        *,
        validate_ids: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_subjects = num_subjects
        self.validate_ids = validate_ids
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

        Raises:
            ValueError: shapes that do not fit; with `validate_ids` also an id out of range, a pair of one
                subject with itself, or a score that is not a number.
        """
        n = len(score_NVS)
        check_shapes(
            class_N=(class_N, (n,)), subject_NS=(subject_NS, (n, 2)), attribute_N=(attribute_N, (n,))
        )
        sums = self.sums
        for part in parts(n) if self.validate_ids else ():
            check_ids(class_N[part], subject_NS[part], attribute_N[part], sums, self.num_subjects)
            # One that is not finite shows in the sum of all, which is quicker than to look at each.
            if not bool(torch.isfinite(score_NVS[part].sum())):
                raise ValueError("score_NVS: a score is not a finite number")
        accumulate(sums, score_NVS, class_N, subject_NS, attribute_N, self.num_subjects)

    def compute(self) -> BiasResult:
        """Aggregates of everything seen; NaN with n = 0 for a class without groups."""
        return aggregate(self.sums, self.num_subjects)

    def _wrap_compute(self, compute: Callable[..., BiasResult]) -> Callable[..., BiasResult]:
        """torchmetrics squeezes tensors of one element; with a single class, give the class axis back."""
        wrapped = super()._wrap_compute(compute)

        def with_class_axis() -> BiasResult:
            value = wrapped()
            return BiasResult(*(field.reshape(1) if field.ndim == 0 else field for field in value))

        return with_class_axis
