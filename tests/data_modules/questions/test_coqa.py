from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from data_modules.questions.coqa import read_rows
from data_modules.schema import QAExample, Turn
from data_modules.sources import read_questions
from storage.errors import DataError

Read = Callable[..., list[QAExample]]
STORY = "Ulla runs a mill.\n\nIts wheel broke. Her son fixed it with two planks."
TURNS = [
    ("Who runs the mill?", "Ulla", "Ulla runs a mill."),
    ("Did it break?", "Yes.", "\nIts wheel broke. "),
    ("Why?", "unknown", None),
    ("Who repaired it?", "her only son", "Her son fixed it"),
    ("With how many planks?", "two", "two planks"),
    ("One or many sons?", "One", "Her son"),
    ("And then?", "Everybody danced", "Its wheel broke."),
]


def story(**changes: Any) -> dict[str, Any]:
    questions, answers = [], []
    for number, (question, answer, why) in enumerate(TURNS, start=1):
        start = STORY.index(why) if why else -1
        end = start + len(why) if why else -1
        questions.append({"input_text": question, "turn_id": number})
        answers.append(
            {"span_start": start, "span_end": end, "span_text": "?", "input_text": answer, "turn_id": number}
        )
    one = {"source": "mctest", "id": "s", "story": STORY, "questions": questions, "answers": answers}
    return one | changes


def document(**changes: Any) -> dict[str, Any]:
    return {"version": "1.0", "data": [story(**changes)]}


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """The examples of a document."""

    def examples(content: Any, **options: Any) -> list[QAExample]:
        path = tmp_path / "f.json"
        path.write_text(json.dumps(content))
        return list(read_questions(path, **options))

    return examples


def test_every_turn_becomes_an_example(read: Read) -> None:
    examples = read(document())
    assert [example.id for example in examples] == [f"s {n}" for n in range(1, 8)]
    assert [example.answer_type for example in examples] == [
        "span", "yes", "unknown", "span", "number", "number", "span",
    ]  # fmt: skip
    assert [[span.text for span in example.answers] for example in examples] == [
        ["Ulla"], [], [], ["Her son"], ["two"], ["son"], ["broke"],
    ]  # fmt: skip
    assert [[span.text for span in example.rationale] for example in examples] == [
        ["Ulla runs a mill."], ["Its wheel broke."], [], ["Her son fixed it"], ["two planks"], ["Her son"],
        ["Its wheel broke."],
    ]  # fmt: skip
    for example in examples:
        assert (example.dataset, example.domain, example.context) == ("coqa", "mctest", STORY)
        for span in (*example.answers, *example.rationale):
            span.check(STORY, example.id)


def test_the_history_is_every_earlier_turn(read: Read) -> None:
    examples = read(document())
    assert examples[0].history == ()
    assert examples[3].history == tuple(Turn(question, answer) for question, answer, _ in TURNS[:3])


def test_references_are_the_primary_answer_and_the_additional_ones_in_order(read: Read) -> None:
    def said(*texts: str) -> list[dict[str, Any]]:
        return [{"input_text": text, "turn_id": n} for n, text in enumerate(texts, start=1)][::-1]

    more = {"1": said("Ulla", "yes"), "0": said("she", "yes", "no idea")}
    examples = read(document(additional_answers=more))
    assert [example.gold for example in examples[:4]] == [
        ("Ulla", "Ulla", "she"),
        ("Yes.", "yes", "yes"),
        ("unknown", "no idea"),
        ("her only son",),
    ]


def test_turns_are_matched_and_ordered_by_their_number(read: Read) -> None:
    turned = story()
    turned = story(questions=turned["questions"][::-1], answers=turned["answers"][3:] + turned["answers"][:3])
    assert read({"data": [turned]}) == read(document())


def with_span(start: int, end: int) -> dict[str, Any]:
    content = document()
    content["data"][0]["answers"][1] |= {"span_start": start, "span_end": end}
    return content


@pytest.mark.parametrize(
    ("content", "message", "left"),
    [
        (
            with_span(9, 5),
            r"f.json: data\[0\] \(story s\): turn 2: .* 9",
            6,
        ),
        (document(questions=story()["questions"][1:]), r"\(story s\): turn 1 has no question", 6),
        (document(answers=story()["answers"][:-1]), r"\(story s\): turn 7 has no answer", 6),
        (document(questions=story()["questions"] + story()["questions"][:1]), "turn 1 occurs twice", 7),
        (
            document(questions=[{"input_text": " ", "turn_id": 1}], answers=story()["answers"][:1]),
            "turn 1: the question is empty",
            0,
        ),
        ({"data": [story(), story()]}, r"data\[1\] \(story s\): this id occurs twice", 7),
    ],
)
def test_bad_turns_are_named_and_can_be_skipped(
    read: Read, caplog: pytest.LogCaptureFixture, content: Any, message: str, left: int
) -> None:
    with pytest.raises(DataError, match=message):
        read(content)
    if left:
        assert len(read(content, skip_bad=True)) == left
    else:
        with pytest.raises(DataError, match="holds no questions"):
            read(content, skip_bad=True)
    assert "bad record(s)" in caplog.text


def test_a_skipped_turn_still_is_history(read: Read) -> None:
    third = read(with_span(9, 5), skip_bad=True)[1]
    assert (third.id, len(third.history)) == ("s 3", 2)


def hub_row(*, columns: bool) -> dict[str, Any]:
    one = story()
    answers = [
        {"input_text": a["input_text"], "answer_start": a["span_start"], "answer_end": a["span_end"]}
        for a in one["answers"]
    ]
    listed: Any = {key: [a[key] for a in answers] for key in answers[0]} if columns else answers
    questions = [question["input_text"] for question in one["questions"]]
    return {"source": "mctest", "story": STORY, "questions": questions, "answers": listed}


@pytest.mark.parametrize("columns", [True, False])
def test_the_hubs_rows_are_the_same_examples(read: Read, columns: bool) -> None:
    examples = list(read_rows([("hub: row 0", hub_row(columns=columns))], "hub"))
    expected = [example.answers for example in read(document())]
    assert [example.answers for example in examples] == expected
    assert [example.id for example in examples] == [f"0 {n}" for n in range(1, 8)]
    row = hub_row(columns=columns)
    with pytest.raises(DataError, match="hub: row 0: 6 questions but 7 answers"):
        list(read_rows([("hub: row 0", row | {"questions": row["questions"][1:]})], "hub"))


def test_the_worked_examples(shared: Path) -> None:
    oracle = shared / "oracle/semantic_faithfulness"
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


def test_real_stories_are_read_whole(shared: Path) -> None:
    for name, turns, references in (("train-1-story.json", 20, 1), ("dev-1-story.json", 12, 4)):
        examples = list(read_questions(shared / "data/coqa" / name))
        assert len(examples) == turns
        for number, example in enumerate(examples):
            assert len(example.history) == number
            if references == 1:
                assert len(example.references) == 1
            for span in (*example.answers, *example.rationale):
                span.check(example.context, example.id)
