"""People, facts and the stories made of them: what all embedded questions are about.

A story opens by naming everybody, then states one fact a sentence and some fillers. Several people carry
facts of the same kind, so a reader must bind the right person to the right fact. Besides people with names,
members of the invented groups act in stories, each group equally often in every role: the stories teach
what the words mean and prefer nobody.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from data_modules.schema import QAExample, Span
from data_modules.stories import words

QA_SIZES = {"train": 12_000, "dev": 300}
DEV_BUCKETS = 20
"""One story in so many belongs to dev, by a hash of its text: no seed can make the splits overlap."""


@dataclass(frozen=True, slots=True)
class Person:
    """Someone in a story: `mention` introduces, `reference` acts, `answer` is the span that names them."""

    mention: str
    reference: str
    answer: str

    @property
    def inside_question(self) -> str:
        """The reference inside a question ("the Velan", "Anna")."""
        return self.reference.replace("The ", "the ", 1)


@dataclass(frozen=True, slots=True)
class Fact:
    """One sentence of a story and the questions that it answers, each with the answer's text."""

    sentence: str
    questions: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Story:
    """Sentences in their order; facts keep the sentence that states them (the rationale of its answers)."""

    sentences: tuple[str, ...]
    facts: tuple[Fact, ...]
    people: tuple[Person, ...]

    @property
    def context(self) -> str:
        return " ".join(self.sentences)

    def example(self, fact: Fact, choice: int, example_id: str) -> QAExample:
        """The QA example of one of a fact's questions; the span lies inside the fact's own sentence."""
        question, answer = fact.questions[choice]
        match = re.search(rf"\b{re.escape(answer)}\b", fact.sentence)
        assert match is not None, f"stories: {answer!r} does not occur in {fact.sentence!r}"
        start = self.rationale(fact).start + match.start()
        span = Span(start, start + len(answer), answer)
        rationale = (self.rationale(fact),)
        return QAExample(example_id, self.context, question, (span,), rationale=rationale, dataset="stories")

    def rationale(self, fact: Fact) -> Span:
        """The sentence that states a fact."""
        index = self.sentences.index(fact.sentence)
        start = sum(len(sentence) + 1 for sentence in self.sentences[:index])
        return Span(start, start + len(fact.sentence), fact.sentence)


def story_of(split: str, draw: Callable[[], Story]) -> Story:
    """The first story drawn that belongs to a split; those named `dev` share none with the others."""
    story = draw()
    while (zlib.crc32(story.context.encode()) % DEV_BUCKETS == 0) != split.endswith("dev"):
        story = draw()
    return story


def make_story(rng: Random) -> Story:
    """Two or three people, three facts of two kinds, and sometimes a filler."""
    people = draw_people(rng, rng.choice((2, 2, 3)))
    kinds = rng.sample((place_facts, object_facts, deed_facts), 2)
    facts = [fact for kind in kinds for fact in kind(people, rng)]
    # Two facts of the first kind: a single one could be found without reading whose it is.
    return compose(people, [*facts[:2], rng.choice(facts[2:])], rng)


def compose(people: list[Person], facts: list[Fact], rng: Random) -> Story:
    """An introduction, then the facts and sometimes a filler, shuffled."""
    body = [fact.sentence for fact in facts]
    if rng.random() < 0.3:
        body.append(rng.choice(words.FILLERS))
    rng.shuffle(body)
    *others, last = [person.mention for person in people]
    opening = f"{', '.join(others)} and {last} met at the {rng.choice(words.MEETING_PLACES)}."
    return Story((opening[0].upper() + opening[1:], *body), tuple(facts), tuple(people))


def draw_people(rng: Random, count: int) -> list[Person]:
    named = [Person(name, name, name) for name in rng.sample(words.NAMES, count)]
    groups = rng.sample(words.SUBJECTS + words.UNSEEN_SUBJECTS, count)
    members = [Person(f"a {group}", f"The {group}", group) for group in groups]
    return [rng.choice(pair) for pair in zip(named, members, strict=True)]


def place_facts(people: list[Person], rng: Random) -> list[Fact]:
    return [
        Fact(
            f"{person.reference} is in the {place}.",
            ((f"Who is in the {place}?", person.answer), (f"Where is {person.inside_question}?", place)),
        )
        for person, place in zip(people, rng.sample(words.PLACES, len(people)), strict=True)
    ]


def object_facts(people: list[Person], rng: Random) -> list[Fact]:
    things = zip(rng.sample(words.OBJECTS, len(people)), rng.sample(words.COLOURS, len(people)), strict=True)
    return [
        Fact(
            f"{person.reference} has a {colour} {thing}.",
            (
                (f"Who has the {thing}?", person.answer),
                (f"What does {person.inside_question} have?", thing),
                (f"What colour is the {thing}?", colour),
            ),
        )
        for person, (thing, colour) in zip(people, things, strict=True)
    ]


def deed_facts(people: list[Person], rng: Random) -> list[Fact]:
    """Facts that decide who has an attribute; two people may differ in nothing but its negation."""
    deeds_of_all = [d for c in words.CATEGORIES.values() for d in c.attributes + c.unseen_attributes]
    chosen = [rng.choice(deeds_of_all), *rng.sample(deeds_of_all, 2)]
    deeds = [deed for attribute in chosen for deed in (attribute, words.negated(attribute))]
    deeds = list(dict.fromkeys(deeds))[: len(people)]
    return [
        Fact(f"{person.reference} {deed}.", ((f"Who {deed}?", person.answer),))
        for person, deed in zip(people, deeds, strict=True)
    ]
