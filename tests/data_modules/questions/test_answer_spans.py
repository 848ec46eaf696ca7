import math
import re
import string
from collections import Counter
from itertools import combinations_with_replacement

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interventune.data_modules.questions.answer_spans import NUMBER_WORDS, answer_span, answer_type
from interventune.data_modules.schema.spans import Span

STORY = (
    "Ulla runs the tea-house at Port Vell. Her nephew Pim carried 20,000 cups there, and a green "
    "kettle. Then the kettle broke, so Pim's aunt did not sleep."
)


def piece(text: str, of: str = STORY) -> Span:
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
def test_an_answer_in_the_rationale_is_cut_from_there(
    answer: str, rationale: str, expected: tuple[int, str]
) -> None:
    (result,) = answer_span(answer, STORY, [piece(rationale)])
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


_WORDS = ["a", "the", "cat", "dog", "red", "and", "ran", ",", ".", "-"]
_TEXTS = st.lists(st.sampled_from(_WORDS), max_size=14).map(" ".join)


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
    assert answer_span("her own nephew", STORY, rationale) == (piece("Her nephew"),)
    assert answer_span("xyz", STORY, rationale) == (piece("broke"),)
    assert answer_span("xyz", STORY, ()) == ()
