"""`interventune evaluate ask`: the answer and the candidates' scores, with and without advice."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from interventune.data_modules.encoding.windows import Encoding
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
WORD = CONTEXT.split()[0].strip(",.")


@pytest.mark.parametrize("architecture", ["bert", "roberta", "xlnet"])
def test_answers_and_scores_match_transformers(architecture: str, tmp_path: Path) -> None:
    checkpoint = save_folder(tmp_path / "m", architecture, seed=2)
    text = ["--context", CONTEXT, "--question", QUESTION, "--advice", ADVICE]
    command: list[str | Path] = ["ask", "--checkpoint", checkpoint, *text]
    given = evaluate(tmp_path / "given", *command, "--candidate", WORD, "met")
    answered = evaluate(tmp_path / "answered", *command)  # whose candidates are the answers
    naive = Naive(checkpoint)
    queries = {"without advice": QUESTION, "with advice": f"{ADVICE} {QUESTION}"}
    answers = {name: naive.answer(CONTEXT, query) for name, query in queries.items()}
    assert {row["asked"]: row["answer"] for row in examples_of(tmp_path / "given")} == answers
    for cells, texts in ((given, {WORD, "met"}), (answered, {*answers.values()})):
        assert len(cells.frame) == 2 * len(texts)
        for name, query in queries.items():
            for text in texts:
                at = CONTEXT.index(text)
                start, end = naive.score(CONTEXT, query, at, at + len(text))
                score = cells("score", asked=name, candidate=text)
                assert score == pytest.approx((start * end) ** 0.5, rel=1e-4)


@pytest.mark.parametrize(("heads", "architecture"), [("rationale", "bert"), ("xlnet", "xlnet")])
def test_candidates_of_heads_score_as_subjects(
    heads: str, architecture: str, tmp_path: Path
) -> None:
    torch.manual_seed(3)
    model = start(tiny_backbone(architecture), heads_class(heads)).eval()
    path = save_model(tmp_path / "a.ckpt", model, Encoding())
    variant = GROUPS[0].variants[0]
    names = [span.text for span in variant.candidates]
    flags = [
        "--context",
        variant.context,
        "--question",
        variant.question,
        "--advice",
        variant.advice,
    ]
    cells = evaluate(tmp_path / "r", "ask", "--checkpoint", path, *flags, "--candidate", *names)
    score_NVS = QuestionCheckpoint(str(path), Asking(device="cpu")).subject_scores(GROUPS[:1])
    scores = [cells("score", asked="with advice", candidate=name) for name in names]
    assert scores == pytest.approx(score_NVS[0, 0].tolist(), rel=1e-4)
