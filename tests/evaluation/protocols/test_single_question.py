"""`interventune evaluate ask`: the answers with and without advice."""

import json
from itertools import product
from pathlib import Path

import pytest

from tests.evaluation.cells import evaluate
from tests.evaluation.checkpoints import QUESTIONS, Naive, save_folder

CONTEXT, QUESTION = QUESTIONS[0].context, QUESTIONS[0].question
ADVICE = "Note that, anna is in the kitchen."


@pytest.mark.parametrize("architecture", ["bert", "roberta", "xlnet"])
def test_answers_match_transformers(architecture: str, tmp_path: Path) -> None:
    folders = [save_folder(tmp_path / f"m{seed}", architecture, seed) for seed in (2, 0)]
    text = ["--context", CONTEXT, "--question", QUESTION, "--advice", ADVICE]
    evaluate(tmp_path / "r", "ask", "--checkpoint", *folders, *text)
    queries = {"without advice": QUESTION, "with advice": f"{ADVICE} {QUESTION}"}
    asked = product(folders, queries.items())
    answers = [[at.name, name, Naive(at).answer(CONTEXT, query)] for at, (name, query) in asked]
    (table,) = json.loads((tmp_path / "r/report.json").read_text())["tables"]
    assert table["rows"] == answers
