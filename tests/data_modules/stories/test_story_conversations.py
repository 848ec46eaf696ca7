"""Embedded conversations: answered by their rationale, balanced, and deletable."""

from __future__ import annotations

from collections import Counter
from itertools import islice

from data_modules.interventions.deletion import perturb
from data_modules.schema import QAExample
from data_modules.stories.questions import MAX_TURNS, qa_examples

PLAIN = tuple(islice(qa_examples("conversation_train"), 2000))
TRAIN = tuple(islice(qa_examples("mixed_train"), 2000))
DEV = tuple(qa_examples("conversation_dev"))


def test_no_story_of_dev_is_in_train() -> None:
    assert len(DEV) == 300
    train = {example.context for example in qa_examples("conversation_train", 1)}
    assert train.isdisjoint(example.context for example in DEV)


def test_spans_lie_in_their_rationale_and_rationales_are_sentences() -> None:
    for example in (*TRAIN, *PLAIN):
        for span in (*example.answers, *example.rationale):
            span.check(example.context, example.id)
        if example.answer_type == "span":
            (rationale,), answer = example.rationale, example.answers[0]
            assert rationale.start <= answer.start
            assert answer.end <= rationale.end
            assert rationale.text.endswith(".")
        assert bool(example.rationale) == (example.answer_type != "unknown")


def test_yes_means_that_the_story_says_so() -> None:
    for example in TRAIN:
        if example.answer_type in ("yes", "no"):
            assert stated(example) == (example.answer_type == "yes"), example


def stated(example: QAExample) -> bool:
    """Whether the rationale says what the question asks, word by word."""
    question = example.question.removesuffix("?").split(maxsplit=1)[1].replace("have a", "has a").lower()
    said = example.rationale[0].text.removesuffix(".").replace(" is in", " in").lower()
    return question == said


def test_answers_are_mostly_spans_sometimes_yes_or_no_and_rarely_unknown() -> None:
    counts = Counter(example.answer_type for example in TRAIN)
    share = {kind: count / len(TRAIN) for kind, count in counts.items()}
    assert 0.01 < share["unknown"] < 0.05
    assert 0.8 < share["span"] < 0.95
    assert 0.7 < counts["yes"] / counts["no"] < 1.4


def test_plain_conversations_are_answered_by_spans() -> None:
    assert {example.answer_type for example in (*PLAIN, *DEV)} == {"span"}


def test_history_asks_about_other_facts_of_the_story() -> None:
    turns = Counter(len(example.history) for example in TRAIN)
    assert set(turns) == set(range(MAX_TURNS + 1))
    for example in TRAIN:
        for turn in example.history:
            assert turn.answer in example.context
            assert turn.question != example.question


def test_deleting_the_rationale_always_leaves_a_story() -> None:
    for example in TRAIN:
        if example.rationale:
            deleted = perturb(example, "ts_r")
            assert isinstance(deleted, QAExample), deleted
            assert example.rationale[0].text not in deleted.context
