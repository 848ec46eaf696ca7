"""Accuracy and loss of multiple choice, as sums.

Shape letters: B batch (questions), N choices of a question.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from interventune.metrics.sum_metric import SumMetric


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

    correct_sum: Tensor
    loss_sum: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_sum("correct_sum", dtype=torch.int64)
        self.add_sum("loss_sum")
        self.add_sum("count", dtype=torch.int64)

    def update(self, logits_BN: Tensor, label_B: Tensor, loss_B: Tensor) -> None:
        """Add questions: logits, label indices and losses. Of equal logits the first is picked."""
        self.correct_sum += (logits_BN.argmax(-1) == label_B).sum()
        self.loss_sum += loss_B.double().sum()
        self.count += len(label_B)

    def compute(self) -> ChoiceResult:
        """Return the means over everything seen."""
        n = self.count
        return ChoiceResult(self.correct_sum.double() / n, self.loss_sum / n, n)
