"""`interventune evaluate ask`: the answers with and without advice."""

from pathlib import Path

import pytest

from tests.evaluation.cells import evaluate, examples_of
from tests.evaluation.checkpoints import QUESTIONS, Naive, save_folder

CONTEXT, QUESTION = QUESTIONS[0].context, QUESTIONS[0].question
ADVICE = "Note that, anna is in the kitchen."


@pytest.mark.parametrize("architecture", ["bert", "roberta", "xlnet"])
def test_answers_match_transformers(architecture: str, tmp_path: Path) -> None:
    checkpoint, naive = save_folder(tmp_path / "m", architecture, seed=2), Naive(tmp_path / "m")
    text = ["--context", CONTEXT, "--question", QUESTION, "--advice", ADVICE]
    evaluate(tmp_path / "r", "ask", "--checkpoint", checkpoint, *text)
    queries = {"without advice": QUESTION, "with advice": f"{ADVICE} {QUESTION}"}
    answers = {name: naive.answer(CONTEXT, query) for name, query in queries.items()}
    assert {row["asked"]: row["answer"] for row in examples_of(tmp_path / "r")} == answers
