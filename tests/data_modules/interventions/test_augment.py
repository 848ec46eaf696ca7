from __future__ import annotations

import doctest
import re
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

import data_modules.interventions.deletion
from data_modules.interventions.augmentation import (
    FRAMES,
    PROMPT,
    clean_sentence,
    failures_of,
    generate_sentences,
    reject_reason,
    template_sentence,
    write_sentences,
)
from data_modules.interventions.deletion import bare_answer, perturb
from data_modules.schema import AnswerType, QAExample, Rejected, Span
from models.language.text_models import Settings, TextFailure

CONTEXT = "Anna met Tom. The red ball was in the garden. It rained."
RATIONALE = Span.locate("The red ball was in the garden", CONTEXT, "test")


def example(answer: str, number: int = 0, answer_type: AnswerType = "span") -> QAExample:
    return QAExample(
        f"q{number}",
        CONTEXT,
        "Where was the ball?",
        (RATIONALE,),
        answer_type=answer_type,
        rationale=(RATIONALE,),
        references=(answer,) if answer else (),
    )


ANSWERS = (
    "the garden",
    "Anna",
    "7",
    "He went home.",
    "U.S.",
    '"I won!"',
    "because she was late",
    "$5",
    "A. B c",
)
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


@pytest.mark.parametrize("answer", ANSWERS)
def test_every_frame_makes_one_sentence_of_any_answer(answer: str) -> None:
    sentences = {template_sentence(example(answer, i)) for i in range(200)}
    assert len(sentences) == (len(FRAMES) if "." not in answer and "!" not in answer else 6)
    for sentence in sentences:
        assert answer in sentence
        assert sentence[0].isupper()
        assert re.search(r"[^.!?][.!?]\"?$", sentence)
        assert reject_reason(sentence, example(answer)) == ""


def test_the_examples_in_docstrings() -> None:
    assert doctest.testmod(data_modules.interventions.deletion).failed == 0


@pytest.mark.parametrize(("answer", "bare"), STRAY.items())
def test_no_sentence_has_stray_punctuation(answer: str, bare: str) -> None:
    """Not `The note on the wall said mustard,.`; and what was written so is taken for the answer."""
    asked = example(answer)
    for i in range(100):
        sentence = template_sentence(example(answer, i))
        assert bare in sentence
        assert not re.search(r"[,;:(\-]\s*[.!?]|,\s+(on|in|was|had)|[.!?]{2}", sentence)
        assert sentence.count('"') % 2 == 0
        assert reject_reason(sentence, asked) == ""
        found = perturb(asked, "os_r_aug", sentence={asked.id: sentence})
        assert isinstance(found, QAExample)
        assert found.appended == sentence


@given(st.text(min_size=1).filter(str.strip), st.integers(0, 5))
def test_a_template_keeps_any_answer_but_for_stray_punctuation(answer: str, seed: int) -> None:
    asked, bare = example(answer), bare_answer(answer)
    assert bare
    assert bare.rstrip(".!?") in " ".join(answer.split())
    sentence = template_sentence(asked, seed)
    assert bare in sentence
    assert sentence == template_sentence(asked, seed)
    assert "{" not in sentence.replace(bare, "")


def test_only_answers_with_words_of_their_own_get_a_sentence() -> None:
    examples = [
        example("the garden", 0),
        example("yes", 1, "yes"),
        example("no", 2, "no"),
        example("unknown", 3, "unknown"),
        example("two", 4, "number"),
        example("red", 5, "option"),
        example(" ", 6),
    ]
    found = generate_sentences(examples)
    assert found.pop("q6") == Rejected("q6", "the answer has no text")
    assert list(found) == ["q0", "q4", "q5"]
    assert not failures_of(found)


@pytest.mark.parametrize(
    ("text", "answer", "cleaned"),
    [
        ("  The sign\nsaid  Anna. It was old.", "Anna", "The sign said Anna."),
        ('"The sign said Anna." Hope this helps!', "Anna", "The sign said Anna."),
        ("“The sign said Anna.”", "Anna", "The sign said Anna."),
        ('"Anna" was on the sign.', "Anna", '"Anna" was on the sign.'),
        ("It said the U.S. was big. Yes.", "the U.S. was big", "It said the U.S. was big."),
        ("He paid 3.50 today. Fine.", "3.50", "He paid 3.50 today."),
    ],
)
def test_a_reply_is_cut_to_its_first_sentence(text: str, answer: str, cleaned: str) -> None:
    assert clean_sentence(text, answer) == cleaned


@pytest.mark.parametrize(
    ("sentence", "answer", "reason"),
    [
        ("My uncle painted THE GARDEN wall.", "the garden", ""),
        ("My uncle painted the gardener.", "the garden", "the answer is not in the sentence"),
        ("My uncle painted the garden", "the garden", "not a whole sentence"),
        ("the garden " + "very " * 39 + "old.", "the garden", "longer than 40 words"),
        ("Yes, the  red ball was in the garden today.", "the garden", "repeats the rationale"),
        ("A note said the red ball was in the garden.", "The red ball was in the garden", ""),
        (
            "The red ball was in the garden, the red ball was in the garden.",
            "The red ball was in the garden",
            "repeats the rationale",
        ),
        ("She said he went home, and left.", "He went home.", ""),
        ("The price was $5 then.", "$5", ""),
        ("", "$5", "the model wrote nothing"),
    ],
)
def test_sentences_are_checked(sentence: str, answer: str, reason: str) -> None:
    assert reject_reason(sentence, example(answer)) == reason


class Scripted:
    """Answers by the phrase that a prompt asks for, one reply after the other."""

    def __init__(self, **replies: list[str | TextFailure]) -> None:
        self.name, self.replies = "scripted", replies
        self.settings: Settings = {}
        self.prompts: list[str] = []

    def complete(self, prompts: Sequence[str]) -> Iterator[str | TextFailure]:
        for prompt in prompts:
            self.prompts.append(prompt)
            (phrase,) = (phrase for phrase in self.replies if f'"{phrase}"' in prompt)
            yield self.replies[phrase].pop(0)


def test_a_bad_sentence_is_asked_for_once_more_in_other_words() -> None:
    model = Scripted(
        Anna=["Nothing here.", "The sign said Anna."],
        Tom=["Nothing here.", "Nothing again."],
        seven=["There were seven."],
        ball=[TextFailure("the endpoint answered 500", "overloaded")],
        cat=["A dog.", TextFailure("empty answer")],
    )
    examples = [example(answer, i) for i, answer in enumerate(("Anna", "Tom", "seven", "ball", "cat"))]
    found = write_sentences(examples, model, progress=False)
    assert found == {
        "q0": "The sign said Anna.",
        "q1": Rejected("q1", "the answer is not in the sentence"),
        "q2": "There were seven.",
        "q3": Rejected("q3", "the endpoint answered 500"),
        "q4": Rejected("q4", "empty answer"),
    }
    assert list(found) == ["q0", "q1", "q2", "q3", "q4"]
    assert perturb(examples[3], "os_r_aug", sentence=found) == Rejected("q3", "the endpoint answered 500")
    assert len(model.prompts) == 8
    assert len(set(model.prompts)) == 8
    assert model.prompts[0] == PROMPT.format(answer="Anna", question="Where was the ball?")
