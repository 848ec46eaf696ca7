"""Answers made elsewhere: the same report as of the model that gave them, and mistakes in a line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.evaluation.cells import Cells
from tests.evaluation.checkpoints import evaluate, examples_of, told
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
    """To the digit, whether they come from a checkpoint or a file; the two stand side by side."""
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
    both = evaluate(tmp_path / "both", name, *flags, *rest[-2:-1], f"again={rest[-1]}")
    halves = [both.frame[both.frame["checkpoint"] == who].iloc[:, 1:] for who in ("typed", "again")]
    assert halves[0].reset_index(drop=True).equals(halves[1].reset_index(drop=True))
    about = json.loads((tmp_path / "file" / "report.json").read_text())["about"]
    assert len(about["checkpoints"]["typed"]["sha256"]) == 64


def test_rows_and_questions_that_do_not_match_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flags = ("--data", "stories:conversation_dev", "--limit", "6", "--variants", "os")
    rows = [{"id": "elsewhere", "answer": "a"}, {"id": "elsewhere", "variant": "ts", "answer": "b"}]
    first = tmp_path / "first.jsonl"
    write_rows(first, [*rows, {"id": story_ids(flags[1])[0], "answer": "c"}])
    caplog.clear()
    evaluate(tmp_path / "r", "faithfulness", "--predictions", first, *flags)
    line = "5 of 6 questions have no row (os 5); 2 of 3 rows were asked for by nobody"
    assert line in caplog.text


def story_ids(source: str) -> list[str]:
    """The ids of the questions that faithfulness asks."""
    from data_modules.sources import read_questions

    return [question.id for question in read_questions(source)]


def test_a_question_without_an_answer_is_counted_apart(room: Path, tmp_path: Path) -> None:
    write_rows(tmp_path / "few.jsonl", [{"id": "p0", "variant": v, "answer": "Yes."} for v in ("org", "mod")])
    flags = ("--predictions", tmp_path / "few.jsonl", "--pairs", room / "pairs.jsonl")
    cells: Cells = evaluate(tmp_path / "r", "negation", *flags)
    assert cells.n("accuracy", checkpoint="few", story="org") == 1
    assert cells("failed", checkpoint="few", story="comb") == 2 / 3
    assert "2 not among the predictions" in (tmp_path / "r" / "report.md").read_text()


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ([], "holds no rows"),
        ([{"id": "p0", "answer": 3}], "line 1"),
        ([{"id": "p0"}], "answer"),
        (
            [{"id": "p0", "variant": "org", "answer": "yes"}, {"id": "p0 org", "answer": "no"}],
            "second answer",
        ),
        ([{"id": "p0", "answer": "yes", "prediction": "no"}], "'prediction'"),
        ([{"id": "someone", "answer": "yes"}], "answered nothing"),
    ],
)
def test_mistakes(
    content: list[Row], word: str, room: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rows(tmp_path / "mine.jsonl", content)
    flags = ("--predictions", tmp_path / "mine.jsonl", "--pairs", room / "pairs.jsonl")
    line = told(capsys, "negation", *flags, "--output", tmp_path / "r")
    assert word in line
    assert "mine" in line


def test_nobody_and_another_kind_of_file(
    room: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rest = ("--pairs", room / "pairs.jsonl", "--output", tmp_path / "r")
    assert "--predictions" in told(capsys, "negation", *rest)
    assert ".jsonl" in told(capsys, "negation", "--predictions", "answers.csv", *rest)
