"""Edits that keep the meaning: worked examples, and what they leave alone."""

from __future__ import annotations

import pytest

from data_modules.interventions.variants import perturb
from data_modules.schema.questions import QAExample, Rejected, Variant
from data_modules.schema.spans import Span

STORY = 'Ana\'s cat sat. It was "old". Later it slept.'


def example(question: str, story: str = STORY, answer: str = "It was") -> QAExample:
    span = Span.locate(answer, story, "here")
    return QAExample("q", story, question, (span,), rationale=(span,), dataset="coqa")


def made(question: str, variant: Variant, story: str = STORY) -> QAExample:
    found = perturb(example(question, story), variant)
    assert isinstance(found, QAExample), found
    return found


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Why did she go?", "For what reason did she go?"),
        ("How many cats came?", "What number of cats came?"),
        ("how many were there?", ""),
        ("When was it?", "At what time was it?"),
        ("Where is the cat?", "In what place is the cat?"),
        ("Where did it come from?", ""),
        ("whose cat is it?", "which person's cat is it?"),
        ("Who owned the cat?", "Which person owned the cat?"),
        ("Who are they?", ""),
        ("Which cat sat?", "What cat sat?"),
        ("Which of them sat?", ""),
        ("What color was it?", "Which color was it?"),
        ("What did it do?", "What exactly did it do?"),
        ("Was it old?", "Tell me, was it old?"),
        ("And then?", ""),
    ],
)
def test_question_words(question: str, expected: str) -> None:
    found = perturb(example(question), "reworded")
    if not expected:
        assert found == Rejected("begins with no question word of the list")
        return
    assert isinstance(found, QAExample)
    assert found.question == expected
    assert (found.context, found.kept) == (STORY, ((0, len(STORY)),))


def test_spaces_and_quotation_marks() -> None:
    spaced, quoted = made("Was it old?", "spaced"), made("Was it Ana's?", "quoted")
    assert spaced.context == 'Ana\'s cat sat.  It was "old".  Later it slept.'
    assert spaced.question == "Was  it old?"
    assert [spaced.context[s.start : s.end] for s in (*spaced.answers, *spaced.rationale)] == ["It was"] * 2
    assert quoted.context == "Ana’s cat sat. It was “old”. Later it slept."
    assert quoted.question == "Was it Ana’s?"
    assert made("Was it Ana’s?", "quoted", quoted.context).context == STORY  # and back
    assert spaced.kept == quoted.kept == ()
    for question, variant in (("Why?", "spaced"), ("Why is it?", "quoted")):
        assert isinstance(perturb(example(question, "One cat.", "cat"), variant), Rejected)
