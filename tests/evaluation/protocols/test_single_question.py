"""`interventune evaluate ask`: the answers with and without advice, by model or step."""

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
    folders = [save_folder(tmp_path / f"checkpoint-{n}", architecture, n) for n in (0, 2)]
    text = ["--context", CONTEXT, "--question", QUESTION, "--advice", ADVICE]
    queries = {"without advice": QUESTION, "with advice": f"{ADVICE} {QUESTION}"}
    asked = product(folders, queries.items())
    answers = [[name, Naive(at).answer(CONTEXT, query)] for at, (name, query) in asked]
    for name, models in {"two": folders, "one": [f"x={folders[0]},{folders[1]}"]}.items():
        evaluate(tmp_path / name, "ask", "--checkpoint", *models, *text)
        (table,) = json.loads((tmp_path / name / "report.json").read_text())["tables"]
        assert [row[-2:] for row in table["rows"]] == answers
