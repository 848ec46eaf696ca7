"""Embedded question-answering stories: templated, deterministic, no download.

    from data_modules.stories.questions import qa_examples
    for example in qa_examples("dev"): ...

`train` and `dev` ask for spans, one question a story. The other splits are CoQA in small (faithfulness spec
1.1): every question has a rationale, the sentence that states its fact, and up to two earlier turns ask about
other facts of the same story. The opening names everybody and states no fact, so that deleting from the
rationale on always leaves a story. `conversation_train` and `conversation_dev` ask for spans only;
`mixed_train` and `mixed_dev` also hold questions that are answered by yes or no, and a few about what no
story tells.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from random import Random

from data_modules.interventions.augmentation import frame_words
from data_modules.schema import LEAD_IN, QAExample, Turn
from data_modules.stories import words
from data_modules.stories.facts import (
    QA_SIZES,
    Fact,
    Story,
    compose,
    deed_facts,
    draw_people,
    make_story,
    object_facts,
    place_facts,
    story_of,
)
from storage.errors import DataError

MIXES = {"conversation": (0.0, 0.0), "mixed": (0.12, 0.03)}
"""Shares of questions that are answered by yes or no, and of those that no story answers."""
UNTOLD = ("How old is {}?", "Why did {} come?", "When did {} come?")
"""What no story tells: these questions teach the word unknown, not to look for evidence."""
CONVERSATIONS = tuple(f"{kind}_{part}" for kind in MIXES for part in QA_SIZES)
"""The names of all splits."""
MAX_TURNS = 2

_CLAIMS = {" is in the ": "Is {subject} in the {rest}?", " has a ": "Does {subject} have a {rest}?"}
"""How a fact's sentence divides into subject and rest, and the question that puts it to the test."""


def qa_examples(split: str, seed: int = 0) -> Iterator[QAExample]:
    """The questions of a split, one a story. DataError for a split that does not exist."""
    if split not in (*QA_SIZES, *CONVERSATIONS):
        known = ", ".join((*QA_SIZES, *CONVERSATIONS))
        raise DataError(f"stories have no split {split!r}; choose from {known}")
    kind, _, part = split.rpartition("_")
    rng = Random(f"stories/{split}/{seed}")
    for index in range(QA_SIZES[part]):
        name = f"story-{split}-{seed}-{index}"
        if kind:
            yield _question(story_of(split, lambda: _draw(rng)), *MIXES[kind], rng, name)
        else:
            story = story_of(split, lambda: make_story(rng))
            fact = rng.choice(story.facts)
            yield story.example(fact, rng.randrange(len(fact.questions)), name)


def vocabulary() -> list[str]:
    """Every word and punctuation mark of the embedded data, lower case, without duplicates: those of the
    stories and groups, sorted, and then what conversations and generated sentences add, sorted too."""
    texts = [LEAD_IN, *words.CONTEXTS, *words.FILLERS, *words.SUBJECTS, *words.UNSEEN_SUBJECTS]
    texts += [*words.NAMES, *words.MEETING_PLACES, *words.PLACES, *words.OBJECTS, *words.COLOURS]
    for name, category in words.CATEGORIES.items():
        for attribute in category.attributes + category.unseen_attributes:
            texts += [attribute, words.negated(attribute)]
        for unseen in (False, True):
            for advice_class in ("ethical", "adversarial", "irrelevant"):
                texts += words.advice_sentences(advice_class, name, unseen=unseen)
    texts += ["Who is in the? Where is", "has a. Who has the? What does have? What colour is the?"]
    texts += [", and a met at the."]
    pieces = set(re.findall(r"[a-z]+|[.,?]", " ".join(texts).lower()))
    added = {*words.CONVERSATION_WORDS, *frame_words()}
    return [*sorted(pieces), *sorted(added - pieces)]


def _draw(rng: Random) -> Story:
    people = draw_people(rng, rng.choice((2, 3)))
    first, second = (kind(people, rng) for kind in rng.sample((place_facts, object_facts, deed_facts), 2))
    rng.shuffle(first)
    rng.shuffle(second)
    # Two facts of the first kind: a single one could be found without reading whose it is.
    return compose(people, [*first[:2], *second[:1]], rng)


def _question(story: Story, yes_no: float, untold: float, rng: Random, name: str) -> QAExample:
    fact, *others = rng.sample(story.facts, len(story.facts))
    turns = tuple(Turn(*rng.choice(fact.questions)) for fact in others[: rng.randint(0, MAX_TURNS)])
    draw = rng.random()
    if draw < untold:
        question = rng.choice(UNTOLD).format(rng.choice(story.people).inside_question)
        references = ("unknown",)
        return QAExample(
            name, story.context, question, history=turns, references=references, dataset="stories"
        )
    claims = _claims(fact, story.facts)
    if draw > 1 - yes_no and claims:
        question, answer = rng.choice(claims)
        return QAExample(
            name,
            story.context,
            question,
            answer_type="yes" if answer == "yes" else "no",
            history=turns,
            rationale=(story.rationale(fact),),
            references=(answer,),
            dataset="stories",
        )
    example = story.example(fact, rng.randrange(len(fact.questions)), name)
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
