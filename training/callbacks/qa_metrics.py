"""Exact match, F1 and the share of unknown of every set of questions, logged after validation and test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from data_modules.batching.sets import QASet
from data_modules.schema import ANSWER_TYPES
from metrics.answers import AnswerResult, AnswerScores, scoring_of
from training.callbacks.eval_sets import EvalSetMetrics, Outputs

NAMES = ("em", "f1", "unknown", "n")


class QAMetrics(EvalSetMetrics):
    """Logs `<stage>/qa/[<set>/]{em,f1,unknown,n}`, all but n in [0, 1], and the same for each type of answer
    (`.../yes/em`) where a set has more than one.

    Predictions are compared with the answers to the original story, so that in a variant without its
    rationale `em` is the share of old answers, and `unknown` what a faithful model says.
    """

    kind = QASet
    shown = "f1"

    def new_metric(self, data: QASet, module: Any) -> AnswerScores:
        return AnswerScores(ANSWER_TYPES)

    def update(self, metric: AnswerScores, data: QASet, batch: Any, outputs: Outputs, module: Any) -> None:
        answers = list(module.decode(data, batch, outputs))
        questions = data.questions([answer.example for answer in answers])
        metric.update(
            [answer.text for answer in answers],
            [question.gold for question in questions],
            [ANSWER_TYPES.index(question.kind) for question in questions],
            [scoring_of(question.dataset) for question in questions],
        )

    def values(self, result: AnswerResult, data: QASet) -> Iterator[tuple[str, Tensor]]:
        yield from ((name, getattr(result, name)) for name in NAMES)
        present = [k for k, count in enumerate(result.n_K.tolist()) if count]
        for k in present if len(present) > 1 else []:
            yield from ((f"{ANSWER_TYPES[k]}/{name}", getattr(result, f"{name}_K")[k]) for name in NAMES)
