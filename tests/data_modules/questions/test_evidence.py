"""Free-form answers and their evidence, and CoQA and HotpotQA, which have both."""

import json
import math
import re
import string
from collections import Counter
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interventune.data_modules.questions.answer_spans import NUMBER_WORDS, answer_span, answer_type
from interventune.data_modules.questions.evidence import build_story, read_coqa, read_hotpotqa
from interventune.data_modules.schema.questions import QAExample, Span
from interventune.data_modules.sources import read_questions
from interventune.storage.documents import DataError
from tests.data_modules.fixtures.coqa_rows import hub_row, told

Log = pytest.LogCaptureFixture

HOUSE = (
    "Ulla runs the tea-house at Port Vell. Her nephew Pim carried 20,000 cups there, and a green "
    "kettle. Then the kettle broke, so Pim's aunt did not sleep."
)
_WORDS = ["a", "the", "cat", "dog", "red", "and", "ran", ",", ".", "-"]
_TEXTS = st.lists(st.sampled_from(_WORDS), max_size=14).map(" ".join)
_SENTENCES = st.lists(st.text(alphabet="ab. \n\u00a0", max_size=8), max_size=5)
VARR, ONE = "Ulla Mill stands on the Varr.", "It has one wheel."
MILL = [f"{VARR} ", f" {ONE}", "It\tis  old.", f" {ONE}"]
ULLA = ["Ulla was a miller.", " She lived in Torp. "]
JOINED = f"{VARR} {ONE}It is old. {ONE} Ulla was a miller. She lived in Torp."


def piece(text: str, of: str = HOUSE) -> Span:
    return Span.locate(text, of, "test")


@pytest.mark.parametrize(
    ("answer", "rationale", "expected"),
    [
        ("  HER NEPHEW\n", "Her nephew Pim carried", (38, "Her nephew")),
        ("kettle", "Then the kettle broke", (109, "kettle")),  # not the first in the story
        ("so", "Then the kettle broke, so Pim", (123, "so")),
        ("he", "Then the kettle", (101, "he")),  # inside a word only, where nothing else is there
    ],
)
def test_answers_lie_in_rationales(answer: str, rationale: str, expected: tuple[int, str]) -> None:
    (result,) = answer_span(answer, HOUSE, [piece(rationale)])
    assert result == Span(expected[0], expected[0] + len(expected[1]), expected[1])


def _naive_words(text: str) -> list[tuple[int, int, str]]:
    keys = ((m.start(), m.end(), m[0].lower()) for m in re.finditer(r"\w+|[^\w\s]", text))
    drop = {"a", "an", "the", *string.punctuation}
    return [(start, end, "" if key in drop else key) for start, end, key in keys]


def _naive_best(answer: str, text: str) -> tuple[int, int] | None:
    words, gold = _naive_words(text), [key for *_, key in _naive_words(answer) if key]
    candidates = [i for i, word in enumerate(words) if word[2] and word[2] in gold]
    best: tuple[float, tuple[int, int] | None] = (0.0, None)
    for i, j in combinations_with_replacement(candidates, 2):
        bag = [key for *_, key in words[i : j + 1] if key]
        shared = sum((Counter(bag) & Counter(gold)).values())
        score = 2 * shared / (len(bag) + len(gold))
        if score > best[0]:
            best = score, (words[i][0], words[j][1])
    return best[1]


@given(answer=_TEXTS, text=_TEXTS)
def test_the_search_by_words_equals_a_naive_loop(answer: str, text: str) -> None:
    result = [(span.start, span.end) for span in answer_span(answer, text, [])]
    assert result == [best for best in [_naive_best(answer, text)] if best]


@given(answer=st.text(max_size=12), text=st.text(max_size=60), end=st.integers(0, 60))
def test_located_spans_cut_what_they_claim(answer: str, text: str, end: int) -> None:
    for scope in (math.inf, end):
        for result in answer_span(answer, text, [Span(0, end, text[:end])], scope_end=scope):
            assert text[result.start : result.end] == result.text
            assert result.end <= min(len(text), scope)


def test_letters_that_grow_in_lower_case_do_not_shift_offsets() -> None:
    text = "İİİ went to İzmir with ULLA."
    assert answer_span("ulla", text, [Span(0, len(text), text)]) == (piece("ULLA", text),)
    assert answer_span("Ulla and İzmir", text, []) == (piece("İzmir with ULLA", text),)


@pytest.mark.parametrize(
    ("answer", "question", "expected"),
    [
        ("Yes.", "", "yes"), (" NO ", "", "no"), ("unknown", "", "unknown"), ("no.", "", "no"),
        ("Yes, it is", "", "span"), ("Three.", "", "number"),
        ("none", "", "number"), ("3", "", "span"),
        ("eleven", "", "span"), ("The red", "Was it red or blue?", "option"),
        ("blue!", "Red, or the blue one?", "option"), ("green", "Was it red or blue?", "span"),
        ("one", "one or two", "number"), ("or", "red or blue", "span"), ("red", "For red", "span"),
        ("", "", "span"), ("", "red or", "span"),
    ],
)  # fmt: skip
def test_the_kinds_of_answers(answer: str, question: str, expected: str) -> None:
    assert answer_type(answer, question)[0] == expected
    assert [answer_type(word, "") for word in NUMBER_WORDS] == [("number", n) for n in range(1, 12)]
    assert [answer_type(word, "Red or blue?")[1] for word in ("red", "blue")] == [1, 2]


def test_an_answer_that_is_nowhere_is_the_last_word_of_its_rationale() -> None:
    rationale = [piece("Then the kettle broke")]
    assert answer_span("her own nephew", HOUSE, rationale) == (piece("Her nephew"),)
    assert answer_span("xyz", HOUSE, rationale) == (piece("broke"),)
    assert answer_span("xyz", HOUSE, ()) == ()


STORY = "Ulla runs a mill.\n\nIts wheel broke. Her son fixed it with two planks."
TURNS = [
    ("Who runs the mill?", "Ulla", "Ulla runs a mill."),
    ("Did it break?", "Yes.", "\nIts wheel broke. "),
    ("Why?", "unknown", ""),
    ("Who repaired it?", "her only son", "Her son fixed it"),
    ("And then?", "Everybody danced", "Its wheel broke."),
]


def coqa(**changes: Any) -> list[QAExample]:
    """The examples of one story."""
    return list(read_coqa(iter([("f: [0]", told(STORY, TURNS) | changes)]), "f"))


def test_references_are_the_primary_answer_and_the_additional_ones_in_order() -> None:
    def answers(*texts: str) -> list[dict[str, Any]]:
        return [{"input_text": text, "turn_id": n} for n, text in enumerate(texts, start=1)][::-1]

    more = {"1": answers("Ulla", "yes"), "0": answers("she", "yes", "no idea")}
    references = [example.gold for example in coqa(additional_answers=more)]
    assert references[:2] == [("Ulla", "Ulla", "she"), ("Yes.", "yes", "yes")]
    assert references[2:4] == [("unknown", "no idea"), ("her only son",)]
    story = told(STORY, TURNS) | {"additional_answers": {"0": answers("she", "yes")[::-1]}}
    numbered = coqa(**story)
    for turns in (story["questions"], story["answers"], story["additional_answers"]["0"]):
        for turn in turns:
            del turn["turn_id"]
    assert coqa(**story) == numbered


def test_bad_turns_are_named() -> None:
    for name, change, error in (
        ("questions", {"turn_id": 9}, "turn 2 has no question"),
        ("answers", {"turn_id": 1}, "two turns have the turn_id 1"),
        ("answers", {"span_start": 9, "span_end": 5}, r"^f: \[0\] \(story s\): turn 2: .* 9 to 5"),
    ):
        first, second, *rest = told(STORY, TURNS)[name]
        with pytest.raises(DataError, match=error):
            coqa(**{name: [first, second | change, *rest]})


@pytest.mark.parametrize("columns", [True, False])
def test_the_hubs_rows_are_the_same(columns: bool, caplog: Log) -> None:
    row = hub_row(told(STORY, TURNS))
    if columns:
        row["answers"] = {name: [one[name] for one in row["answers"]] for name in row["answers"][0]}
    examples = list(read_coqa(iter([("hub: row 0", row)]), "hub"))
    assert [example.answers for example in examples] == [example.answers for example in coqa()]
    assert [example.id for example in examples] == [f"0 {n}" for n in range(1, 6)]
    assert "one reference" in caplog.text


def without_space(spans: tuple[Span, ...]) -> list[str]:
    return [re.sub(r"\s", "", span.text) for span in spans]


def test_the_worked_examples_of_coqa(oracle: Path) -> None:
    rows = json.loads((oracle / "expected_words.json").read_text())["coqa/OS"]
    examples = list(read_questions(oracle / "coqa_tiny.json"))
    assert [example.id for example in examples] == [row["id"] for row in rows]
    for example, row in zip(examples, rows, strict=True):
        places = [] if row["label"] == "unknown" else [row["rationale_words"]]
        if row["label"] not in ("yes", "no", "unknown"):
            places.append((row["start_word"], row["end_word"]))
        expected = ["".join(row["words"][first : last + 1]) for first, last in places]
        assert without_space((*example.rationale, *example.answers)) == expected
    types = ["span", "span", "span", "yes", "number", "unknown", "option"]
    assert [example.answer_type for example in examples] == types + ["span"] * 4 + ["no"]
    assert examples[1].references == ("Tom", "her brother", "Tom", "Her brother Tom")
    assert examples[10].references == ("90", "90", "90 steps", "ninety")
    assert {example.domain for example in examples} == {"mctest", "gutenberg"}


def hotpotqa(**changes: Any) -> QAExample:
    context = [["Torp", ["A town."]], ["Ulla Mill", MILL], ["Else", ["No."]], ["Ulla", ULLA]]
    row = {"_id": "q", "question": "Where did the owner of Ulla Mill live?", "answer": "Torp"}
    row |= {"supporting_facts": [["Ulla", 1], ["Ulla Mill", 0]], "type": "bridge", "level": "easy"}
    (example,) = read_hotpotqa(iter([("f: [0]", row | {"context": context} | changes)]), "f")
    return example


def test_the_story_is_the_gold_paragraphs_in_their_order() -> None:
    example = hotpotqa(story=None)
    assert example.context == JOINED
    assert [span.text for span in example.rationale] == [VARR, "She lived in Torp."]
    assert example.answers == (Span.locate("Torp", JOINED, "test"),)
    assert (example.id, example.dataset, example.domain) == ("q", "hotpotqa", "bridge")


def test_a_story_of_the_file_is_read_as_it_is() -> None:
    """The faithfulness paper's files hold one; ours is made only where there is none."""
    story = f"Ulla was a miller.  She lived in\nTorp. {VARR} She lived in Torp."
    example = hotpotqa(story=story)
    assert example.context == story
    assert [span.text for span in example.rationale] == ["She lived in\nTorp.", VARR]
    assert example.answers == (Span.locate("Torp", story, "test"),)
    with pytest.raises(DataError, match=r"\(id q\): the supporting sentence 'She .*' is not in"):
        hotpotqa(story=VARR)


def test_facts_without_a_sentence_are_counted(caplog: Log) -> None:
    facts = [["Ulla", 2], ["Ulla", 0], ["Ulla Mill", -1], ["Ulla Mill", 7]]
    example = hotpotqa(supporting_facts=facts)
    assert [span.text for span in example.rationale] == ["Ulla was a miller."]
    assert example.context == JOINED
    assert caplog.messages == ["f: left out 3 supporting fact(s) without such a sentence"]


@given(paragraphs=st.lists(_SENTENCES, max_size=4))
def test_offsets_cut_the_sentences_and_the_story_is_their_join(paragraphs: list[list[str]]) -> None:
    story, spans = build_story(paragraphs)
    joined = (re.sub(r"\s+", " ", "".join(sentences)).strip() for sentences in paragraphs)
    assert story == " ".join(text for text in joined if text)
    for sentences, parts in zip(paragraphs, spans, strict=True):
        assert [part.text for part in parts] == [" ".join(text.split()) for text in sentences]
        assert all(story[part.start : part.end] == part.text for part in parts)


def test_the_worked_examples_of_hotpotqa(oracle: Path) -> None:
    examples = list(read_questions(oracle / "hotpot_tiny.json"))
    documents = json.loads((oracle / "hotpot_tiny.json").read_text())
    rows = json.loads((oracle / "expected_words.json").read_text())["hotpot/OS"]
    for example, item, row in zip(examples, documents, rows, strict=True):
        assert example.context == item["story"]
        words = "".join(row["words"][row["start_word"] : row["end_word"] + 1])
        assert without_space(example.answers) == [words]
    rationale = ["It opened in 1931.", "She designed Oslen Bridge."]
    assert [span.text for span in examples[0].rationale] == rationale
