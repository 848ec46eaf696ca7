"""Accuracy and loss of every set of multiple-choice questions, logged after validation and test."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl

from data_modules.batching.eval_sets import EvalSet
from data_modules.encoding.choices import ChoiceSet
from metrics.choices import ChoiceScores
from training.callbacks.eval_sets import EvalSetCallback, Outputs, metric_key


class ChoiceMetrics(EvalSetCallback):
    """Logs `<stage>/choices/[<set>/]{accuracy,loss,n}`; the loss is that of training, without weights."""

    def __init__(self) -> None:
        self.metrics: dict[str, ChoiceScores] = {}

    def start(self, stage: str) -> None:
        self.metrics = {}

    def update(self, module: pl.LightningModule, outputs: Outputs, batch: Any, data: EvalSet) -> None:
        if isinstance(data.data, ChoiceSet):
            metric = self._metric(data.name).to(module.device)
            metric.update(outputs["logits_BN"], batch.label_B, outputs["loss_B"])

    def _metric(self, name: str) -> ChoiceScores:
        return self.metrics.setdefault(name, ChoiceScores())

    def finish(self, module: pl.LightningModule, stage: str, sets: list[EvalSet]) -> None:
        for name, data in sets:
            if isinstance(data, ChoiceSet):
                result = self._metric(name).to(module.device).compute()
                for metric in ("accuracy", "loss", "n"):
                    value = getattr(result, metric).float()
                    module.log(
                        metric_key(stage, "choices", name, metric), value, prog_bar=metric == "accuracy"
                    )
