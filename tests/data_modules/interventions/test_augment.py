from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.interventions.augmentation import FRAMES, bare_answer, given_sentence, template_sentence
from data_modules.schema.questions import QAExample, Rejected
from data_modules.schema.spans import Span

CONTEXT = "Anna met Tom. The red ball was in the garden. It rained."
WHY = Span.locate("The red ball was in the garden", CONTEXT, "test")
ANSWERS = ("the garden", "7", "He went home.", "U.S.", '"I won!"', "because she was late", "$5", "A. B c")


def example(answer: str, number: int = 0) -> QAExample:
    return QAExample(f"q{number}", CONTEXT, "Where?", (WHY,), rationale=(WHY,), references=(answer,))


def reason(sentence: str, answer: str) -> str:
    found = given_sentence(example(answer), {"q0": sentence})
    return found.reason if isinstance(found, Rejected) else ""


@pytest.mark.parametrize("answer", ANSWERS)
def test_every_frame_makes_one_sentence_of_any_answer(answer: str) -> None:
    sentences = {template_sentence(example(answer, i)) for i in range(200)}
    assert len(sentences) == (len(FRAMES) if "." not in answer and "!" not in answer else 6)
    for sentence in sentences:
        assert answer in sentence
        assert sentence[0].isupper()
        assert re.search(r"[^.!?][.!?]\"?$", sentence)
        assert reason(sentence, answer) == ""


@given(st.text(min_size=1).filter(str.strip))
def test_a_template_keeps_any_answer_but_for_stray_punctuation(answer: str) -> None:
    bare = bare_answer(answer)
    assert bare
    assert bare.rstrip(".!?") in " ".join(answer.split())
    sentence = template_sentence(example(answer))
    assert bare in sentence
    assert "{" not in sentence.replace(bare, "")


@pytest.mark.parametrize(
    ("sentence", "answer", "expected"),
    [
        ("My uncle painted THE GARDEN wall.", "the garden", ""),
        ("My uncle painted the gardener.", "the garden", "the sentence lacks the answer"),
        ("My uncle painted the garden", "the garden", "the sentence has no end"),
        ("Yes, the  red ball was in the garden today.", "the garden", "the sentence repeats the rationale"),
        ("A note said the red ball was in the garden.", "The red ball was in the garden", ""),
        ("She said he went home, and left.", "He went home.", ""),
        ("The price was $5 then.", "$5", ""),
        ("", "$5", "no sentence"),
    ],
)
def test_sentences_of_a_file_are_checked(sentence: str, answer: str, expected: str) -> None:
    assert reason(sentence, answer) == expected
