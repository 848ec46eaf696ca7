"""Exact match and F1 of every set of questions, logged after validation and test."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl

from data_modules.datasets import QASet
from data_modules.decoding import decode_answers
from data_modules.qa import EvalSet
from metrics.qa import AnswerScores
from training.callbacks.eval_sets import EvalSetCallback, Outputs, metric_key


class QAMetrics(EvalSetCallback):
    """Logs `<stage>/qa/[<set>/]{em,f1,n}`; EM and F1 in [0, 1]."""

    def __init__(self) -> None:
        self.metrics: dict[str, AnswerScores] = {}

    def start(self, stage: str) -> None:
        self.metrics = {}

    def update(self, module: pl.LightningModule, outputs: Outputs, batch: Any, data: EvalSet) -> None:
        if not isinstance(data.data, QASet):
            return
        answers = list(decode_answers(data.data, batch.feature_B, *outputs["spans"]))
        references = [[span.text for span in data.data.examples[a.example].answers] for a in answers]
        self.metrics.setdefault(data.name, AnswerScores()).update([a.text for a in answers], references)

    def finish(self, module: pl.LightningModule, stage: str, sets: list[EvalSet]) -> None:
        for name, data in sets:
            if not isinstance(data, QASet):
                continue
            result = self.metrics.setdefault(name, AnswerScores()).to(module.device).compute()
            module.log(metric_key(stage, "qa", name, "em"), result.exact_match.float())
            module.log(metric_key(stage, "qa", name, "f1"), result.f1.float(), prog_bar=True)
            module.log(metric_key(stage, "qa", name, "n"), result.n.float())
