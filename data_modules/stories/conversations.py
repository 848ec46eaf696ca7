"""Embedded conversations about a story: questions with history and rationales.

    from data_modules.stories.conversations import conversation_examples
    for example in conversation_examples("conversation_dev"): ...

CoQA in small (faithfulness spec 1.1): every question has a rationale, the sentence that states its fact, and
up to two earlier turns ask about other facts of the same story. The opening names everybody and states no
fact, so that deleting from the rationale on always leaves a story.

`conversation_train` and `conversation_dev` ask for spans only. `mixed_train` and `mixed_dev` also hold
questions that are answered by yes or no, and a few about what no story tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import NamedTuple

from data_modules.schema import QAExample, Turn
from data_modules.stories.facts import (
    QA_SIZES,
    Fact,
    Story,
    compose,
    deed_facts,
    draw_people,
    object_facts,
    place_facts,
    story_of,
)
from storage.errors import DataError


class Mix(NamedTuple):
    """Shares of questions that are not answered by a span."""

    yes_no: float
    untold: float


MIXES = {"conversation": Mix(0, 0), "mixed": Mix(0.12, 0.03)}
UNTOLD = ("How old is {}?", "Why did {} come?", "When did {} come?")
"""What no story tells: these questions teach the word unknown, not to look for evidence."""
CONVERSATIONS = tuple(f"{kind}_{part}" for kind in MIXES for part in QA_SIZES)
"""The names of all splits."""
MAX_TURNS = 2

_CLAIMS = {" is in the ": "Is {subject} in the {rest}?", " has a ": "Does {subject} have a {rest}?"}
"""How a fact's sentence divides into subject and rest, and the question that puts it to the test."""


def conversation_examples(split: str, seed: int = 0) -> Iterator[QAExample]:
    """The questions of `conversation_train`, `conversation_dev`, `mixed_train` or `mixed_dev`, one a story.

    Raises DataError for a split that does not exist.
    """
    if split not in CONVERSATIONS:
        raise DataError(f"stories have no split {split!r}; choose from {', '.join(CONVERSATIONS)}")
    kind, _, part = split.partition("_")
    mix, size = MIXES[kind], QA_SIZES[part]
    rng = Random(f"stories/{split}/{seed}")
    for index in range(size):
        story = story_of(split, lambda: _draw(rng))
        yield _question(story, mix, rng, f"story-{split}-{seed}-{index}")


def _draw(rng: Random) -> Story:
    people = draw_people(rng, rng.choice((2, 3)))
    first, second = (kind(people, rng) for kind in rng.sample((place_facts, object_facts, deed_facts), 2))
    rng.shuffle(first)
    rng.shuffle(second)
    # Two facts of the first kind: a single one could be found without reading whose it is.
    return compose(people, [*first[:2], *second[:1]], rng)


def _question(story: Story, mix: Mix, rng: Random, name: str) -> QAExample:
    asked, *others = rng.sample(story.facts, len(story.facts))
    turns = tuple(Turn(*rng.choice(fact.questions)) for fact in others[: rng.randint(0, MAX_TURNS)])
    draw = rng.random()
    if draw < mix.untold:
        question = rng.choice(UNTOLD).format(rng.choice(story.people).inside_question)
        references = ("unknown",)
        return QAExample(
            name, story.context, question, history=turns, references=references, dataset="stories"
        )
    claims = _claims(asked, story.facts)
    if draw > 1 - mix.yes_no and claims:
        question, answer = rng.choice(claims)
        return QAExample(
            name,
            story.context,
            question,
            answer_type="yes" if answer == "yes" else "no",
            history=turns,
            rationale=(story.rationale(asked),),
            references=(answer,),
            dataset="stories",
        )
    example = story.example(asked, rng.randrange(len(asked.questions)), name)
    return replace(example, history=turns, references=(example.answers[0].text,))


def _claims(fact: Fact, facts: tuple[Fact, ...]) -> list[tuple[str, str]]:
    """One question that the fact's sentence confirms, and one that it denies if another fact offers the wrong
    half: as many of either, so that neither answer is the better guess."""
    for verb, question in _CLAIMS.items():
        if verb not in fact.sentence:
            continue
        subject, rest = fact.sentence.removesuffix(".").split(verb)
        subject = subject.replace("The ", "the ", 1)
        wrong = [
            other.sentence.removesuffix(".").split(verb)[1]
            for other in facts
            if other is not fact and verb in other.sentence
        ]
        if wrong:
            halves = [(rest, "yes"), (wrong[0], "no")]
            return [(question.format(subject=subject, rest=half), answer) for half, answer in halves]
    return []
