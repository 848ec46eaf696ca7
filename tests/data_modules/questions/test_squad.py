from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from data_modules.questions.squad import read_file, read_rows
from data_modules.schema.questions import QAExample
from data_modules.schema.spans import Span
from data_modules.sources import read_questions
from storage.errors import DataError

CONTEXT = "Ann lives in Rome. Bob lives in Rome."


def document(**changes: Any) -> dict[str, Any]:
    qa = {
        "id": "q1",
        "question": " Where is Ann? ",
        "answers": [{"text": "Rome", "answer_start": 13}],
    } | changes
    return {"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": CONTEXT, "qas": [qa]}]}]}


def saved(folder: Path, content: Any) -> Path:
    path = folder / "data.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_text_is_untouched_and_references_are_in_order_without_repeats(tmp_path: Path) -> None:
    answers = [{"text": "Rome", "answer_start": start} for start in (32, 13, 32)]
    (example,) = read_file(saved(tmp_path, document(answers=answers)))
    spans = (Span(32, 36, "Rome"), Span(13, 17, "Rome"))
    assert example == QAExample("q1", CONTEXT, " Where is Ann? ", spans, dataset="squad", article="t")


@pytest.mark.parametrize("impossible", [True, "true"])
def test_squad_v2_unanswerable_has_no_answers(tmp_path: Path, impossible: Any) -> None:
    plausible = [{"text": "Rome", "answer_start": 13}]
    content = document(answers=[], is_impossible=impossible, plausible_answers=plausible)
    (example,) = read_file(saved(tmp_path, content))
    assert example.answers == ()


@pytest.mark.parametrize(
    "changes",
    [
        *({"answers": [{"text": t, "answer_start": s}]} for t, s in (("Rome", 12), ("Rome", -24), ("", 3))),
        {"is_impossible": True},
    ],
)
def test_a_bad_question_is_named(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = saved(tmp_path, document(**changes))
    with pytest.raises(DataError, match=r"data\.json: data\[0\]\.paragraphs\[0\]\.qas\[0\] \(id q1\)"):
        list(read_file(path))


@pytest.mark.parametrize(
    ("texts", "more", "named"),
    [
        (["Rome"], {}, r"place 7 \(id 1\): .*answer_start 1"),
        (["a", "b"], {}, "place 7: .*shorter"),
        (["nn"], {"is_impossible": True}, r"place 7 \(id 1\): is_impossible is True, but"),
        (["nn"], {"is_impossible": "True"}, "is_impossible is True, but"),
        ([], {"is_impossible": False}, "is_impossible is False, but"),
    ],
)
def test_a_bad_row_in_the_hubs_layout_is_named(texts: list[str], more: dict[str, Any], named: str) -> None:
    answers = {"text": texts, "answer_start": [1] * bool(texts)}
    row = {"id": "1", "context": CONTEXT, "question": "", "answers": answers} | more
    with pytest.raises(DataError, match=named):
        list(read_rows([("place 7", row)], "hub"))


def test_real_files_are_read_whole(shared: Path) -> None:
    count = {
        name: sum(1 for _ in read_questions(shared / "data/squad" / name))
        for name in ("train-44-articles.json", "dev-24-articles.json")
    }
    assert count == {"train-44-articles.json": 11_877, "dev-24-articles.json": 4_961}
