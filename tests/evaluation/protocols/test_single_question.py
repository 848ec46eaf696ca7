"""`interventune evaluate ask`: the answers and their scores, with and without advice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from interventune.data_modules.encoding.windows import Encoding
from interventune.data_modules.schema.questions import QAExample
from interventune.evaluation.answering.checkpoint import QuestionCheckpoint
from interventune.evaluation.answering.interface import Asking
from interventune.models.checkpoint import heads_class
from interventune.models.loading import start
from tests.evaluation.checkpoints import (
    GROUPS,
    QUESTIONS,
    Naive,
    evaluate,
    examples_of,
    save_folder,
    save_model,
    tiny_backbone,
)

CONTEXT, QUESTION = QUESTIONS[0].context, QUESTIONS[0].question
ADVICE = "Note that, anna is in the kitchen."


@pytest.mark.parametrize("architecture", ["bert", "roberta", "xlnet"])
def test_answers_and_scores_match_transformers(architecture: str, tmp_path: Path) -> None:
    checkpoint, naive = save_folder(tmp_path / "m", architecture, seed=2), Naive(tmp_path / "m")
    text = ["--context", CONTEXT, "--question", QUESTION, "--advice", ADVICE]
    cells = evaluate(tmp_path / "r", "ask", "--checkpoint", checkpoint, *text)
    queries = {"without advice": QUESTION, "with advice": f"{ADVICE} {QUESTION}"}
    answers = {name: naive.answer(CONTEXT, query) for name, query in queries.items()}
    assert {row["asked"]: row["answer"] for row in examples_of(tmp_path / "r")} == answers
    assert len(cells.frame) == 2 * len({*answers.values()})
    for name, query in queries.items():
        for answer in answers.values():
            at = CONTEXT.index(answer)
            start, end = naive.score(CONTEXT, query, at, at + len(answer))
            score = cells("score", asked=name, candidate=answer)
            assert score == pytest.approx((start * end) ** 0.5, rel=1e-4)


@pytest.mark.parametrize(("heads", "architecture"), [("rationale", "bert"), ("xlnet", "xlnet")])
def test_spans_of_heads_score_as_subjects(heads: str, architecture: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    model = start(tiny_backbone(architecture), heads_class(heads)).eval()
    path = save_model(tmp_path / "a.ckpt", model, Encoding())
    checkpoint, variant = QuestionCheckpoint(str(path), Asking(device="cpu")), GROUPS[0].variants[0]
    question = QAExample("q", variant.context, variant.question, tuple(variant.candidates))
    question = replace(question, advice=variant.advice)
    (log_score_C,) = checkpoint.span_scores([question], against_unknown=False)
    score_NVS = checkpoint.subject_scores(GROUPS[:1])
    assert np.exp(log_score_C) == pytest.approx(score_NVS[0, 0].tolist(), rel=1e-4)
