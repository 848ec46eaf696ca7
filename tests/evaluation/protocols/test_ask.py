"""`python -m evaluation ask`: the answer and the candidates' scores, with and without advice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from data_modules.batching.decoding import Answer
from data_modules.encoding.windows import Encoding
from evaluation.__main__ import main
from evaluation.answering.checkpoint import QuestionCheckpoint
from evaluation.answering.interface import Asking
from models.backbones import Backbone
from models.checkpoint import heads_class, start
from tests.evaluation.checkpoints import (
    GROUPS,
    QUESTIONS,
    Naive,
    evaluate,
    examples_of,
    save_ckpt,
    save_folder,
    save_model,
    told,
)

CONFIG: dict[str, dict[str, Any]] = {
    "bert": {"vocab_size": 320, "hidden_size": 32, "intermediate_size": 64},
    "xlnet": {"vocab_size": 320, "d_model": 32, "d_inner": 64, "pad_token_id": 5},
}
CONTEXT, QUESTION = QUESTIONS[0].context, QUESTIONS[0].question
ADVICE = "Note that, anna is in the kitchen."
WORD = CONTEXT.split()[0].strip(",.")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_folder(tmp_path_factory.mktemp("model"), seed=1)


def asked(checkpoint: Path, *more: str, context: str = CONTEXT) -> list[str]:
    return ["ask", "--checkpoint", str(checkpoint), "--context", context, "--question", QUESTION, *more]


@pytest.mark.parametrize("architecture", ["bert", "roberta", "xlnet"])
def test_answers_and_scores_are_those_of_transformers(architecture: str, tmp_path: Path) -> None:
    checkpoint = save_folder(tmp_path / "m", architecture, seed=2)
    cells = evaluate(tmp_path / "r", *asked(checkpoint, "--advice", ADVICE, "--candidate", WORD, "met"))
    naive = Naive(checkpoint)
    queries = {"without advice": QUESTION, "with advice": f"{ADVICE} {QUESTION}"}
    rows = {row["asked"]: row["answer"] for row in examples_of(tmp_path / "r")}
    assert rows == {name: naive.answer(CONTEXT, query) for name, query in queries.items()}
    for name, query in queries.items():
        for text in (WORD, "met"):
            at = CONTEXT.index(text)
            start, end = naive.score(CONTEXT, query, at, at + len(text))
            assert cells("score", asked=name, candidate=text) == pytest.approx((start * end) ** 0.5, rel=1e-4)
    assert len(cells.frame) == 4


def test_without_candidates_the_answers_are_scored(folder: Path, tmp_path: Path) -> None:
    """At their own place, also where the same characters stand earlier inside another word."""
    cells = evaluate(tmp_path / "r", *asked(folder, "--advice", ADVICE))
    answers = {row["asked"]: row["answer"] for row in examples_of(tmp_path / "r")}
    for text in answers.values():
        assert 0 < cells("score", asked="with advice", candidate=text) <= 1
    glued = f"x{answers['without advice']}x . {CONTEXT}"
    other = evaluate(tmp_path / "s", *asked(folder, context=glued))
    (text,) = (row["answer"] for row in examples_of(tmp_path / "s"))
    assert list(other.frame["candidate"]) == [text]


def test_a_long_context_is_read_in_windows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = save_ckpt(tmp_path / "short.ckpt", max_length=64, stride=16)
    context = " ".join(q.context for q in QUESTIONS[:8])
    last = QUESTIONS[7].context.split()[-1].strip(".")
    command = asked(checkpoint, "--candidate", WORD, last, context=context)
    cells = evaluate(tmp_path / "r", *command)
    assert cells.frame["value"].between(0, 1, inclusive="neither").all()
    assert main(command) == 0
    assert last in capsys.readouterr().out, "the table needs no folder"


@pytest.mark.parametrize(("heads", "architecture"), [("rationale", "bert"), ("xlnet", "xlnet")])
def test_candidates_are_scored_by_answer_heads(heads: str, architecture: str, tmp_path: Path) -> None:
    """S of two candidates is what `bias` counts, exp of the mean over boundaries of `group_log_probs`."""
    backbone = Backbone(architecture=architecture, checkpoint="random", config=CONFIG[architecture])  # type: ignore[arg-type]
    torch.manual_seed(3)
    path = save_model(tmp_path / "a.ckpt", start(backbone, heads_class(heads)).eval(), Encoding())
    group = GROUPS[0]
    variant = group.variants[0]
    names = [span.text for span in variant.candidates]
    flags = ["--context", variant.context, "--question", variant.question, "--advice", variant.advice]
    cells = evaluate(tmp_path / "r", "ask", "--checkpoint", path, *flags, "--candidate", *names)
    score_VS = QuestionCheckpoint(str(path), Asking(device="cpu")).subject_scores([group])[0]
    for name, score in zip(names, score_VS[0].tolist(), strict=True):
        found = cells("score", asked="with advice", candidate=name)
        assert found == pytest.approx(score, rel=1e-4)


@pytest.mark.parametrize("text", ["unknown", ""])
def test_an_answer_that_stands_nowhere_is_shown_and_not_scored(
    text: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models with answer types say so of every faithful answer to a story without its rationale."""
    answer = Answer(0, text, -1, 0.0, text or "unknown")  # type: ignore[arg-type]
    monkeypatch.setattr(QuestionCheckpoint, "spans", lambda self, examples, **_: iter([answer]))
    cells = evaluate(tmp_path / "r", *asked(folder, "--advice", ADVICE))
    assert [row["answer"] for row in examples_of(tmp_path / "r")] == [text, text]
    assert not len(cells.frame)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"--candidate": WORD[:-1]}, repr(WORD[:-1])),
        ({"--context": " "}, "--context"),
        ({"--question": "who " * 400}, "--question"),
    ],
)
def test_mistakes_cost_one_line(
    changes: dict[str, str], word: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags: dict[str, Any] = {"--checkpoint": folder, "--context": CONTEXT, "--question": QUESTION} | changes
    assert word in told(capsys, "ask", *(part for item in flags.items() for part in item))
