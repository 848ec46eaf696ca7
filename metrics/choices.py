"""Accuracy and loss of multiple choice, as sums.

Shape letters: B batch (questions), N choices of a question.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .sum_metric import SumMetric


class ChoiceResult(NamedTuple):
    """Means over questions; NaN if n = 0. float64 scalars, n int64."""

    accuracy: Tensor
    """Share in [0, 1] of questions whose top choice is the label (perturbed ones:
    pseudo-accuracy).
    """
    loss: Tensor
    """Mean loss in nats."""
    n: Tensor


class ChoiceScores(SumMetric):
    """Accuracy and loss over all questions seen, on all processes.

    Example:
        >>> metric = ChoiceScores()
        >>> logits, losses = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0.1, 1.3])
        >>> metric.update(logits, torch.tensor([0, 0]), losses)
        >>> metric.compute().accuracy.item()
        0.5
    """

    sum_3: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_sum("sum_3", 3)  # right choices, losses, questions

    def update(self, logits_BN: Tensor, label_B: Tensor, loss_B: Tensor) -> None:
        """Add questions: logits, label indices and losses. Of equal logits the first is picked."""
        right_B, loss_B = logits_BN.argmax(-1) == label_B, loss_B.double()
        self.sum_3 += torch.stack([right_B, loss_B, torch.ones_like(loss_B)]).sum(1)

    def compute(self) -> ChoiceResult:
        """Return the means over everything seen."""
        right, loss, n = self.sum_3
        return ChoiceResult(right / n, loss / n, n.long())
