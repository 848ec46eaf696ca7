"""Embedded questions about stories, also multiple choice: templated, deterministic, no download.

    from interventune.data_modules.stories.questions import qa_examples
    for example in qa_examples("dev"): ...

A story first names everybody, then states one fact per sentence and some fillers. Several people
have facts of the same kind, so a reader must connect the right person with the right fact. Besides
people with names, members of the invented groups occur in stories, each group equally often in
every role: the stories teach what the words mean and prefer nobody.

`train` and `dev` ask for spans, one question per story. The other splits imitate CoQA (faithfulness
spec 1.1): every question has a rationale, the sentence that states its fact, and up to two earlier
turns ask about other facts of the same story. `conversation_train` and `conversation_dev` ask for
spans only; `mixed_train` and `mixed_dev` also have questions answered by yes or no, and a few that
no story answers.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from random import Random
from typing import NamedTuple

from interventune.data_modules.schema.groups import LEAD_IN
from interventune.data_modules.schema.questions import AnswerType, ChoiceQuestion, QAExample, Turn
from interventune.data_modules.schema.spans import Span
from interventune.data_modules.stories.words import WORDS, advice_sentences, negated
from interventune.storage.errors import DataError

QA_SIZES = {"train": 12_000, "dev": 300}
DEV_BUCKETS = 20
"""One story in this many is in dev, by a hash of its text, so that splits are disjoint for any
seeds.
"""
MIXES = {"conversation": (0.0, 0.0), "mixed": (0.12, 0.03)}
"""Shares of questions answered by yes or no, and of those that no story answers."""
SPLITS = (*QA_SIZES, *(f"{kind}_{part}" for kind in MIXES for part in QA_SIZES))
CHOICE_SIZES = {"choices_train": 6000, "choices_dev": 300}
GROUPS = WORDS.subjects + WORDS.unseen_subjects
KINDS = (WORDS.places, WORDS.objects, WORDS.colours, WORDS.names + GROUPS)
"""Sets of answers that can replace each other."""
_UNTOLD = ("How old is {}?", "Why did {} come?", "When did {} come?")
"""Topics absent from all stories: these questions teach the word unknown, not to look
for evidence.
"""
_CLAIMS = {" is in the ": "Is {} in the {}?", " has a ": "Does {} have a {}?"}
"""Splits a fact's sentence into subject and rest, with the yes-or-no question about it."""


class Fact(NamedTuple):
    """One sentence of a story and the questions that it answers, each with the answer's text."""

    sentence: str
    questions: tuple[tuple[str, str], ...]


class Story(NamedTuple):
    """A text, and the facts that some of its sentences state."""

    context: str
    facts: tuple[Fact, ...]
    people: tuple[str, ...]


def qa_examples(split: str, seed: int = 0) -> Iterator[QAExample]:
    """Yield the questions of a split, one per story. DataError for a split that does not exist."""
    if split not in SPLITS:
        raise DataError(
            f"stories have no questions {split!r}; choose from {', '.join(SPLITS)}; "
            f"groups are {', '.join(WORDS.group_splits)}"
        )
    kind, _, part = split.rpartition("_")
    rng = Random(f"stories/{split}/{seed}")
    for index in range(QA_SIZES[part]):
        story = story_of(split, lambda: _conversation(rng) if kind else make_story(rng))
        name = f"story-{split}-{seed}-{index}"
        yield _turn(story, *MIXES[kind], rng, name) if kind else _ask(story, rng, name)


def choice_examples(split: str, seed: int = 0) -> Iterator[ChoiceQuestion]:
    """Yield multiple-choice questions, one per story; DataError for a split that does not exist.
    Without its prompt, a question can only be guessed: right and wrong choices are drawn from the
    same words, and the right choice's position is random.
    """
    if split not in CHOICE_SIZES:
        raise DataError(f"stories have no choices {split!r}; choose from {', '.join(CHOICE_SIZES)}")
    rng = Random(f"stories/{split}/{seed}")
    for index in range(CHOICE_SIZES[split]):
        story = story_of(split, lambda: make_story(rng))
        question, answer = rng.choice(rng.choice(story.facts).questions)
        kind = next(kind for kind in KINDS if answer in kind)
        # Other words of the story as choices would require knowing which fact belongs to whom.
        others = [word for word in kind if word not in story.context]
        choices = [answer, *rng.sample(others, 2)]
        rng.shuffle(choices)
        name = f"{split.replace('choices_', 'choice-')}-{seed}-{index}"
        prompt = f"{story.context} {question}"
        yield ChoiceQuestion(name, prompt, tuple(choices), choices.index(answer), "stories")


def vocabulary() -> list[str]:
    """Return every word and punctuation mark of the embedded data, lower case, without duplicates:
    those of the stories and groups, sorted, then those of conversations and generated sentences,
    sorted.
    """
    from interventune.data_modules.interventions.augmentation import FRAMES

    texts = [LEAD_IN, *WORDS.contexts, *WORDS.fillers, *WORDS.meeting_places, *chain(*KINDS)]
    for name, category in WORDS.categories.items():
        texts += [*category.attributes, *category.unseen_attributes, negated("")]
        for unseen in (False, True):
            for advice_class in ("ethical", "adversarial", "irrelevant"):
                texts += advice_sentences(advice_class, name, unseen=unseen)
    texts += [
        "Who is in the? Where is, and a met at the.",
        "has a. What does have? What colour is the?",
    ]
    pieces = set(re.findall(r"[a-z]+|[.,?]", " ".join(texts).lower()))
    framing = re.findall(r"[a-z]+", " ".join(FRAMES).replace("{answer}", "").lower())
    return [*sorted(pieces), *sorted({*WORDS.conversation_words, *framing} - pieces)]


def story_of(split: str, draw: Callable[[], Story]) -> Story:
    """Return the first drawn story that belongs to a split; `dev` splits share none with the
    others.
    """
    while True:
        story = draw()
        if (zlib.crc32(story.context.encode()) % DEV_BUCKETS == 0) == split.endswith("dev"):
            return story


def make_story(rng: Random) -> Story:
    """Make a story of two or three people, three facts of two kinds, and sometimes a filler."""
    people = _people(rng, rng.choice((2, 2, 3)))
    facts = [fact for kind in rng.sample(_KINDS, 2) for fact in kind(people, rng)]
    # Two facts of the first kind: a single one could be found without the person.
    return _compose(people, [*facts[:2], rng.choice(facts[2:])], rng)


def _conversation(rng: Random) -> Story:
    """The same in another order of draws."""
    people = _people(rng, rng.choice((2, 3)))
    first, second = ([*kind(people, rng)] for kind in rng.sample(_KINDS, 2))
    rng.shuffle(first)
    rng.shuffle(second)
    return _compose(people, [*first[:2], *second[:1]], rng)


def _compose(people: list[str], facts: list[Fact], rng: Random) -> Story:
    """An introduction, which states no fact, then the facts and sometimes a filler, shuffled."""
    body = [fact.sentence for fact in facts]
    if rng.random() < 0.3:
        body.append(rng.choice(WORDS.fillers))
    rng.shuffle(body)
    *others, last = [_called(name, "a ") for name in people]
    opening = f"{', '.join(others)} and {last} met at the {rng.choice(WORDS.meeting_places)}."
    return Story(" ".join((opening[0].upper() + opening[1:], *body)), tuple(facts), tuple(people))


def _people(rng: Random, count: int) -> list[str]:
    """Some by their own name, some by that of their group."""
    drawn = (rng.sample(kind, count) for kind in (WORDS.names, GROUPS))
    return [rng.choice(pair) for pair in zip(*drawn, strict=True)]


def _called(name: str, article: str) -> str:
    """Someone as sentences call them: Anna, but "the Velan"."""
    return name if name in WORDS.names else article + name


def _place_facts(people: list[str], rng: Random) -> Iterator[Fact]:
    for name, place in zip(people, rng.sample(WORDS.places, len(people)), strict=True):
        questions = (
            (f"Who is in the {place}?", name),
            (f"Where is {_called(name, 'the ')}?", place),
        )
        yield Fact(f"{_called(name, 'The ')} is in the {place}.", questions)


def _object_facts(people: list[str], rng: Random) -> Iterator[Fact]:
    things, colours = (rng.sample(kind, len(people)) for kind in (WORDS.objects, WORDS.colours))
    for name, thing, colour in zip(people, things, colours, strict=True):
        questions = [
            (f"Who has the {thing}?", name),
            (f"What does {_called(name, 'the ')} have?", thing),
        ]
        questions.append((f"What colour is the {thing}?", colour))
        yield Fact(f"{_called(name, 'The ')} has a {colour} {thing}.", tuple(questions))


def _deed_facts(people: list[str], rng: Random) -> Iterator[Fact]:
    """Facts that decide who has an attribute; two people may differ in nothing but its negation."""
    every = [d for c in WORDS.categories.values() for d in c.attributes + c.unseen_attributes]
    drawn = [rng.choice(every), *rng.sample(every, 2)]
    deeds = dict.fromkeys(deed for attribute in drawn for deed in (attribute, negated(attribute)))
    for name, deed in zip(people, deeds, strict=False):
        yield Fact(f"{_called(name, 'The ')} {deed}.", ((f"Who {deed}?", name),))


_KINDS = (_place_facts, _object_facts, _deed_facts)


def _ask(story: Story, rng: Random, name: str, fact: Fact | None = None) -> QAExample:
    """A question about a fact of the story; the span lies inside the fact's own sentence."""
    fact = fact or rng.choice(story.facts)
    question, answer = rng.choice(fact.questions)
    rationale = Span.locate(fact.sentence, story.context, "stories")
    start = rationale.start + fact.sentence.index(answer)
    answers = (Span(start, start + len(answer), answer),)
    return QAExample(
        name, story.context, question, answers, rationale=(rationale,), dataset="stories"
    )


def _turn(story: Story, yes_no: float, untold: float, rng: Random, name: str) -> QAExample:
    fact, *others = rng.sample(story.facts, len(story.facts))
    history = tuple(Turn(*rng.choice(other.questions)) for other in others[: rng.randint(0, 2)])
    draw = rng.random()
    claims = _claims(fact, story.facts)
    plain = QAExample(name, story.context, "", history=history, dataset="stories")
    if draw < untold:
        question = rng.choice(_UNTOLD).format(_called(rng.choice(story.people), "the "))
        return replace(plain, question=question, references=("unknown",))
    if draw > 1 - yes_no and claims:
        question, kind = rng.choice(claims)
        rationale = (Span.locate(fact.sentence, story.context, "stories"),)
        return replace(
            plain, question=question, answer_type=kind, rationale=rationale, references=(kind,)
        )
    example = _ask(story, rng, name, fact)
    return replace(example, history=history, references=(example.answers[0].text,))


def _claims(fact: Fact, facts: tuple[Fact, ...]) -> list[tuple[str, AnswerType]]:
    """One question that the fact's sentence confirms, and one that it denies if another fact offers
    the wrong half: as many of either, so that neither answer is the better guess.
    """
    for verb, question in _CLAIMS.items():
        alike = [
            other.sentence.removesuffix(".").split(verb)
            for other in facts
            if verb in other.sentence
        ]
        subject, _, rest = fact.sentence.removesuffix(".").partition(verb)
        wrong = [half for who, half in alike if who != subject]
        if rest and wrong:
            whom = subject.replace("The ", "the ", 1)
            return [(question.format(whom, rest), "yes"), (question.format(whom, wrong[0]), "no")]
    return []
