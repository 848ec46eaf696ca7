"""Accuracy and loss of every set of multiple-choice questions, logged after validation and test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from data_modules.batching.choice_set import ChoiceSet
from metrics.choices import ChoiceScores
from training.callbacks.eval_sets import EvalSetMetrics, Outputs


class ChoiceMetrics(EvalSetMetrics):
    """Logs `<stage>/choices/[<set>/]{accuracy,loss,n}`; the loss is that of training, without weights."""

    kind = ChoiceSet
    shown = "accuracy"

    def new_metric(self, data: ChoiceSet, module: Any) -> ChoiceScores:
        return ChoiceScores()

    def update(
        self, metric: ChoiceScores, data: ChoiceSet, batch: Any, outputs: Outputs, module: Any
    ) -> None:
        metric.update(outputs["logits_BN"], batch.label_B, outputs["loss_B"])

    def values(self, result: Any, data: ChoiceSet) -> Iterator[tuple[str, Tensor]]:
        yield from result._asdict().items()
