from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interventune.data_modules.questions.evidence import build_story, read_hotpotqa
from interventune.data_modules.schema.spans import Span
from interventune.data_modules.sources import read_questions
from interventune.storage.errors import DataError

MILL = [
    "Ulla Mill stands on the Varr. ",
    " It has one wheel.",
    "It\tis  old.",
    " It has one wheel.",
]
ULLA = ["Ulla was a miller.", " She lived in Torp. "]
STORY = (
    "Ulla Mill stands on the Varr. It has one wheel.It is old. It has one wheel. "
    "Ulla was a miller. She lived in Torp."
)


def question(**changes: Any) -> dict[str, Any]:
    one: dict[str, Any] = {
        "_id": "q",
        "question": "Where did the owner of Ulla Mill live?",
        "answer": "Torp",
    }
    one |= {"supporting_facts": [["Ulla", 1], ["Ulla Mill", 0]], "type": "bridge", "level": "easy"}
    context = [
        ["Torp", ["Torp is a town."]],
        ["Ulla Mill", MILL],
        ["Else", ["No."]],
        ["Ulla", ULLA],
    ]
    return one | {"context": context} | changes


def read(*questions: Any, **options: Any) -> list[Any]:
    return list(
        read_hotpotqa(((f"f: [{i}]", one) for i, one in enumerate(questions)), "f", **options)
    )


def test_the_story_is_the_gold_paragraphs_in_their_order() -> None:
    (example,) = read(question())
    assert example.context == STORY
    rationale = ["Ulla Mill stands on the Varr.", "She lived in Torp."]
    assert [span.text for span in example.rationale] == rationale
    assert example.answers == (Span.locate("Torp", STORY, "test"),)
    assert (example.id, example.dataset, example.domain) == ("q", "hotpotqa", "bridge")


def test_a_story_of_the_file_is_read_as_it_is() -> None:
    """The faithfulness paper's files hold one; ours is made only where there is none."""
    story = (
        "Ulla was a miller.  She lived in\nTorp. Ulla Mill stands on the Varr. She lived in Torp."
    )
    (example,) = read(question(story=story))
    assert example.context == story
    rationale = ["She lived in\nTorp.", "Ulla Mill stands on the Varr."]
    assert [span.text for span in example.rationale] == rationale
    assert example.answers == (Span.locate("Torp", story, "test"),)
    (made,) = read(question(story=None))
    assert made.context == STORY
    with pytest.raises(
        DataError, match=r"\(id q\): the supporting sentence 'She lived in Torp.' is not in"
    ):
        read(question(story="Ulla Mill stands on the Varr."))


def test_facts_without_a_sentence_are_left_out_and_counted_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    facts = [["Ulla", 2], ["Ulla", 0], ["Ulla Mill", -1], ["Ulla Mill", 7]]
    with caplog.at_level(logging.WARNING):
        first, second = read(
            question(supporting_facts=facts), question(_id="r", supporting_facts=facts)
        )
    assert [span.text for span in first.rationale] == ["Ulla was a miller."]
    assert first.context == second.context == STORY
    assert caplog.messages == ["f: left out 6 supporting fact(s) without such a sentence"]


_SENTENCES = st.lists(st.text(alphabet="ab. \n\u00a0", max_size=8), max_size=5)


@given(paragraphs=st.lists(_SENTENCES, max_size=4))
def test_the_offsets_cut_the_sentences_and_the_story_is_their_plain_join(
    paragraphs: list[list[str]],
) -> None:
    story, spans = build_story(paragraphs)
    joined = (re.sub(r"\s+", " ", "".join(sentences)).strip() for sentences in paragraphs)
    assert story == " ".join(text for text in joined if text)
    for sentences, parts in zip(paragraphs, spans, strict=True):
        assert [part.text for part in parts] == [" ".join(text.split()) for text in sentences]
        assert all(story[part.start : part.end] == part.text for part in parts)


def test_the_worked_examples(oracle: Path) -> None:
    examples = list(read_questions(oracle / "hotpot_tiny.json"))
    documents = json.loads((oracle / "hotpot_tiny.json").read_text())
    rows = json.loads((oracle / "expected_words.json").read_text())["hotpot/OS"]
    for example, item, row in zip(examples, documents, rows, strict=True):
        assert example.context == item["story"]
        words = "".join(row["words"][row["start_word"] : row["end_word"] + 1])
        assert [re.sub(r"\s", "", span.text) for span in example.answers] == [words]
    rationale = ["It opened in 1931.", "She designed Oslen Bridge."]
    assert [span.text for span in examples[0].rationale] == rationale
