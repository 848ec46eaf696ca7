"""Exact match, F1 and the share of unknown of every set of questions, logged after validation and test."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl

from data_modules.batching.eval_sets import EvalSet
from data_modules.encoding.sets import QASet
from data_modules.schema import ANSWER_TYPES
from metrics.answers import AnswerScores, scoring_of
from training.callbacks.eval_sets import EvalSetCallback, Outputs, metric_key


class QAMetrics(EvalSetCallback):
    """Logs `<stage>/qa/[<set>/]{em,f1,unknown,n}`, all but n in [0, 1], and the same for each type of answer
    (`.../yes/em`) where a set has more than one.

    Predictions are compared with the answers to the original story, so that in a variant without its
    rationale `em` is the share of old answers, and `unknown` what a faithful model says.
    """

    def __init__(self) -> None:
        self.metrics: dict[str, AnswerScores] = {}

    def start(self, stage: str) -> None:
        self.metrics = {}

    def update(self, module: pl.LightningModule, outputs: Outputs, batch: Any, data: EvalSet) -> None:
        if not isinstance(data.data, QASet):
            return
        answers = list(module.decode(data.data, batch, outputs))
        examples = [data.data.examples[answer.example] for answer in answers]
        self._metric(data.name).update(
            [answer.text for answer in answers],
            [example.gold for example in examples],
            [ANSWER_TYPES.index(example.answer_type) for example in examples],
            [scoring_of(example.dataset) for example in examples],
        )

    def _metric(self, name: str) -> AnswerScores:
        return self.metrics.setdefault(name, AnswerScores(ANSWER_TYPES))

    def finish(self, module: pl.LightningModule, stage: str, sets: list[EvalSet]) -> None:
        for name, data in sets:
            if not isinstance(data, QASet):
                continue
            result = self._metric(name).to(module.device).compute()
            for metric in ("em", "f1", "unknown", "n"):
                value = getattr(result, metric).float()
                module.log(metric_key(stage, "qa", name, metric), value, prog_bar=metric == "f1")
            kinds = [k for k, count in enumerate(result.n_K.tolist()) if count]
            for k in kinds if len(kinds) > 1 else []:
                for metric in ("em", "f1", "unknown", "n"):
                    value = getattr(result, f"{metric}_K")[k].float()
                    module.log(metric_key(stage, "qa", name, f"{ANSWER_TYPES[k]}/{metric}"), value)
