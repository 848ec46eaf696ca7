from __future__ import annotations

import doctest
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.interventions import augmentation, reformatting
from data_modules.interventions.augmentation import FRAMES, bare_answer, given_sentence, template_sentence
from data_modules.interventions.variants import perturb
from data_modules.schema import QAExample, Rejected, Span

CONTEXT = "Anna met Tom. The red ball was in the garden. It rained."
WHY = Span.locate("The red ball was in the garden", CONTEXT, "test")
ANSWERS = ("the garden", "7", "He went home.", "U.S.", '"I won!"', "because she was late", "$5", "A. B c")
STRAY = {
    "mustard,": "mustard",
    "a dog;": "a dog",
    "- Tom": "Tom",
    "red -": "red",
    ", seven": "seven",
    'he left,"': "he left",
    'he left".': "he left.",
    "(in the garden": "in the garden",
    "He went home,.": "He went home.",
}
"""Answers as people wrote them, and what a sentence can hold of them."""


def example(answer: str, number: int = 0) -> QAExample:
    return QAExample(f"q{number}", CONTEXT, "Where?", (WHY,), rationale=(WHY,), references=(answer,))


def reason(sentence: str, answer: str) -> str:
    found = given_sentence(example(answer), {"q0": sentence})
    return found.reason if isinstance(found, Rejected) else ""


def test_the_examples_in_docstrings() -> None:
    assert doctest.testmod(augmentation).failed == doctest.testmod(reformatting).failed == 0


@pytest.mark.parametrize("answer", ANSWERS)
def test_every_frame_makes_one_sentence_of_any_answer(answer: str) -> None:
    sentences = {template_sentence(example(answer, i)) for i in range(200)}
    assert len(sentences) == (len(FRAMES) if "." not in answer and "!" not in answer else 6)
    for sentence in sentences:
        assert answer in sentence
        assert sentence[0].isupper()
        assert re.search(r"[^.!?][.!?]\"?$", sentence)
        assert reason(sentence, answer) == ""


@pytest.mark.parametrize(("answer", "bare"), STRAY.items())
def test_no_sentence_has_stray_punctuation(answer: str, bare: str) -> None:
    """Not `The note on the wall said mustard,.`; and what was written so is taken for the answer."""
    for i in range(100):
        sentence = template_sentence(example(answer, i))
        assert bare in sentence
        assert not re.search(r"[,;:(\-]\s*[.!?]|,\s+(on|in|was|had)|[.!?]{2}", sentence)
        assert sentence.count('"') % 2 == 0
        found = perturb(example(answer), "os_r_aug", {"q0": sentence})
        assert isinstance(found, QAExample)
        assert found.appended == sentence


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
