from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interventune.data_modules.questions.evidence import read_coqa
from interventune.data_modules.schema.questions import QAExample
from interventune.data_modules.sources import read_questions
from interventune.storage.errors import DataError
from tests.data_modules.fixtures.coqa_rows import hub_row, told

Read = Callable[..., list[QAExample]]
STORY = "Ulla runs a mill.\n\nIts wheel broke. Her son fixed it with two planks."
TURNS = [
    ("Who runs the mill?", "Ulla", "Ulla runs a mill."),
    ("Did it break?", "Yes.", "\nIts wheel broke. "),
    ("Why?", "unknown", ""),
    ("Who repaired it?", "her only son", "Her son fixed it"),
    ("With how many planks?", "two", "two planks"),
    ("One or many sons?", "One", "Her son"),
    ("And then?", "Everybody danced", "Its wheel broke."),
]


def document(**changes: Any) -> dict[str, Any]:
    return {"version": "1.0", "data": [told(STORY, TURNS) | changes]}


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """The examples of a document."""

    def examples(content: Any, **options: Any) -> list[QAExample]:
        path = tmp_path / "f.json"
        path.write_text(json.dumps(content))
        return list(read_questions(path, **options))

    return examples


def test_references_are_the_primary_answer_and_the_additional_ones_in_order(read: Read) -> None:
    def said(*texts: str) -> list[dict[str, Any]]:
        return [{"input_text": text, "turn_id": n} for n, text in enumerate(texts, start=1)][::-1]

    more = {"1": said("Ulla", "yes"), "0": said("she", "yes", "no idea")}
    examples = read(document(additional_answers=more))
    golds = [
        ("Ulla", "Ulla", "she"),
        ("Yes.", "yes", "yes"),
        ("unknown", "no idea"),
        ("her only son",),
    ]
    assert [example.gold for example in examples[:4]] == golds


def test_turns_without_numbers_keep_their_additional_answers(read: Read) -> None:
    more = {"0": [{"input_text": "she", "turn_id": 1}, {"input_text": "yes", "turn_id": 2}]}
    content = document(additional_answers=more)
    numbered = [example.gold for example in read(content)]
    story = content["data"][0]
    for turns in (story["questions"], story["answers"], story["additional_answers"]["0"]):
        for turn in turns:
            del turn["turn_id"]
    assert [example.gold for example in read(content)] == numbered


def test_bad_turns_are_named(read: Read) -> None:
    content = document()
    content["data"][0]["answers"][1]["turn_id"] = 1
    with pytest.raises(DataError, match="two turns have the turn_id 1"):
        read(content)
    with pytest.raises(DataError, match="turn 7 has no question"):
        read(document(questions=told(STORY, TURNS)["questions"][:-1]))
    content = document()
    content["data"][0]["answers"][1] |= {"span_start": 9, "span_end": 5}
    with pytest.raises(DataError, match=r"f.json: data\[0\] \(story s\): turn 2: .* 9"):
        read(content)
    with pytest.raises(DataError, match=r"questions 1 and 8 \(id s 1\) are the same"):
        read({"data": [told(STORY, TURNS)] * 2})


@pytest.mark.parametrize("columns", [True, False])
def test_the_hubs_rows_are_the_same_examples(
    read: Read, columns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    row = hub_row(told(STORY, TURNS))
    if columns:
        row["answers"] = {name: [one[name] for one in row["answers"]] for name in row["answers"][0]}
    examples = list(read_coqa([("hub: row 0", row)], "hub"))
    assert [example.answers for example in examples] == [
        example.answers for example in read(document())
    ]
    assert [example.id for example in examples] == [f"0 {n}" for n in range(1, 8)]
    assert "one reference" in caplog.text
    with pytest.raises(DataError, match=r"hub: row 0 \(story 0\): turn 7 has no question"):
        list(read_coqa([("hub: row 0", row | {"questions": row["questions"][1:]})], "hub"))


def test_the_worked_examples(oracle: Path) -> None:
    rows = json.loads((oracle / "expected_words.json").read_text())["coqa/OS"]
    examples = list(read_questions(oracle / "coqa_tiny.json"))
    assert [example.id for example in examples] == [row["id"] for row in rows]

    def cut(row: Any, first: int, last: int) -> str:
        return "".join(row["words"][first : last + 1])

    for example, row in zip(examples, rows, strict=True):
        found = [re.sub(r"\s", "", span.text) for span in (*example.rationale, *example.answers)]
        if row["label"] == "unknown":
            assert not found
            continue
        expected = [cut(row, *row["rationale_words"])]
        if row["label"] not in ("yes", "no"):
            expected.append(cut(row, row["start_word"], row["end_word"]))
        assert found == expected
    types = ["span", "span", "span", "yes", "number", "unknown", "option"]
    assert [example.answer_type for example in examples] == types + ["span"] * 4 + ["no"]
    assert examples[1].references == ("Tom", "her brother", "Tom", "Her brother Tom")
    assert examples[10].references == ("90", "90", "90 steps", "ninety")
    assert {example.domain for example in examples} == {"mctest", "gutenberg"}
