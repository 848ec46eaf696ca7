"""Answers made elsewhere: the same report as of the model that gave them; mistakes name the line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from data_modules.schema import QAExample
from evaluation.answering.predictions import MISSING, Predictions
from storage.errors import DataError
from tests.evaluation.checkpoints import evaluate, examples_of
from tests.evaluation.protocol_cases import CASES, write_rows

Row = dict[str, Any]


def of_stories(row: Row) -> list[Row]:
    return [{"id": row["id"], "variant": row["variant"], "answer": row["prediction"]}]


def of_pairs(row: Row) -> list[Row]:
    return [{"id": row["id"], "variant": s, "answer": row[f"prediction_{s}"]} for s in ("org", "mod")]


def of_colours(row: Row) -> list[Row]:
    return [{"id": row["id"], "answer": row["prediction"]}]


PROTOCOLS: dict[str, Callable[[Row], list[Row]]] = {
    "faithfulness": of_stories,
    "negation": of_pairs,
    "predicate-argument": of_colours,
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_same_answers_make_the_same_report(protocol: str, room: Path, tmp_path: Path) -> None:
    case = next(case for case in CASES if case.protocol == protocol)
    name, *flags = case.command(room, tmp_path / "model")[:-2]
    asked = evaluate(tmp_path / "model", name, *flags)
    rows = [answer for row in examples_of(tmp_path / "model") for answer in PROTOCOLS[protocol](row)]
    write_rows(tmp_path / "typed.jsonl", rows)
    at = flags.index("--checkpoint")
    rest = [*flags[:at], *flags[at + 2 :], "--predictions", str(tmp_path / "typed.jsonl")]
    answered = evaluate(tmp_path / "file", name, *rest)
    assert answered.frame.equals(asked.frame)
    assert examples_of(tmp_path / "file") == examples_of(tmp_path / "model")


def question(name: str, variant: str = "os") -> QAExample:
    return QAExample(name, "Anna is in the attic.", "Where is Anna?", variant=variant)  # type: ignore[arg-type]


def test_unmatched_rows_and_questions_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"id": "a", "answer": "attic"}, {"id": "b", "variant": "ts", "answer": "x"}]
    write_rows(tmp_path / "some.jsonl", rows)
    answerer = Predictions(str(tmp_path / "some.jsonl"))
    answers = list(answerer.answers([question("a"), question("a", "ts"), question("c")]))
    assert [(answer.text, answer.failure) for answer in answers] == [
        ("attic", ""),
        ("", MISSING),
        ("", MISSING),
    ]
    answerer.log_unmatched()
    assert "2 of 3 questions have no row; 1 of 2 rows were not asked for" in caplog.text
    before = answerer.identity
    write_rows(tmp_path / "some.jsonl", rows[:1])
    assert Predictions(str(tmp_path / "some.jsonl")).identity != before


def test_two_answers_to_one_question_are_an_error(tmp_path: Path) -> None:
    rows = [{"id": "p0", "variant": "org", "answer": "yes"}, {"id": "p0 org", "answer": "no"}]
    write_rows(tmp_path / "mine.jsonl", rows)
    with pytest.raises(DataError, match=r"mine.jsonl, line 2: a second answer"):
        Predictions(str(tmp_path / "mine.jsonl"))
