"""Embedded questions about stories, also multiple choice: templated, deterministic, no download.

    from interventune.data_modules.stories.questions import qa_examples
    for example in qa_examples("dev"): ...

A story first names its people, then states one fact per sentence and some fillers. Several people
have facts of the same kind, so a reader must connect the right person with the right fact. Besides
people with names, members of the invented groups occur in stories, each group equally often in
every role: the stories teach what the words mean and prefer no group.

`train` and `dev` ask for spans, one question per story. The other splits imitate CoQA (Chaturvedi
et al. 2023, section 4.1): every question has a rationale, the sentence that states its fact, and up
to two earlier turns ask about other facts of the same story. `conversation_train` and
`conversation_dev` ask for spans only; `mixed_train` and `mixed_dev` also have questions answered by
yes or no, and a few that no story answers.
"""

import re
import zlib
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from random import Random
from typing import NamedTuple

from interventune.data_modules.interventions.edits import FRAMES
from interventune.data_modules.schema.groups import LEAD_IN
from interventune.data_modules.schema.questions import (
    AnswerType,
    ChoiceQuestion,
    QAExample,
    Span,
    TextPair,
    Texts,
    Turn,
)
from interventune.storage.documents import DataError

from .words import WORDS, FactKind, QuestionSplit, negated

DEV_BUCKETS = 20
"""One story in this many is in dev, by a hash of its text, so that splits are disjoint for any
seeds.
"""
GROUPS = WORDS.subjects + WORDS.unseen_subjects
KINDS = (WORDS.places, WORDS.objects, WORDS.colours, WORDS.names + GROUPS)
"""Sets of answers that can replace each other."""


class Fact(NamedTuple):
    """One sentence of a story and the questions that it answers, each with the answer's text."""

    sentence: str
    questions: list[TextPair]
    claim: str
    """A yes-or-no question, with slots for the words; empty if there is none."""
    words: Texts
    """The person, as sentences call them, and the other words of the sentence."""


class Story(NamedTuple):
    """A text, and the facts that some of its sentences state."""

    context: str
    facts: list[Fact]
    people: list[str]


def qa_examples(split: str, seed: int = 0) -> Iterator[QAExample]:
    """Yield the questions of a split, one per story. DataError for a split that does not exist."""
    if split not in WORDS.question_splits:
        raise DataError(
            f"stories have no questions {split!r}; choose from "
            f"{', '.join(WORDS.question_splits)}; groups are {', '.join(WORDS.group_splits)}"
        )
    options = WORDS.question_splits[split]
    rng = Random(f"stories/{split}/{seed}")
    for index in range(options.size):
        story = _story_of(split, options.conversation, rng)
        yield _example(f"story-{split}-{seed}-{index}", story, options, rng)


def choice_examples(split: str, seed: int = 0) -> Iterator[ChoiceQuestion]:
    """Yield multiple-choice questions, one per story; DataError for a split that does not exist.
    Without its prompt, a question can only be guessed: right and wrong choices are drawn from the
    same words, and the right choice's position is random.
    """
    if split not in WORDS.choice_splits:
        raise DataError(
            f"stories have no choices {split!r}; choose from {', '.join(WORDS.choice_splits)}"
        )
    rng = Random(f"stories/{split}/{seed}")
    for index in range(WORDS.choice_splits[split]):
        story = _story_of(split, False, rng)
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
    sorted, then the label words of opinions.
    """
    texts = [LEAD_IN, *WORDS.contexts, *WORDS.fillers, *WORDS.meeting_places, *chain(*KINDS)]
    texts += ["and a met at the", negated("")]
    for fact in WORDS.facts:
        texts += [fact.sentence, *fact.questions, fact.claim]
    for category in WORDS.categories.values():
        texts += category.attributes + category.unseen_attributes + category.topics
    texts += WORDS.group_phrases + WORDS.other_phrases + WORDS.other_topics
    texts += chain(*WORDS.frames, *WORDS.unseen_frames)
    words = _words_of(texts)
    others = _words_of([*WORDS.conversation_words, *FRAMES]) - words
    return [*sorted(words), *sorted(others), "0", "1", "bad", "brief", "dot", "long", "mark"]


def _words_of(texts: Iterable[str]) -> set[str]:
    """Words and punctuation marks, without the slots of templates."""
    return set(re.findall(r"[a-z]+|[.,?|]", re.sub(r"{\w*}", "", " ".join(texts).lower())))


def _story_of(split: str, conversation: bool, rng: Random) -> Story:
    """The first story drawn that belongs to the split; `dev` splits share none with the others."""
    while True:
        story = _story(conversation, rng)
        if (zlib.crc32(story.context.encode()) % DEV_BUCKETS == 0) == split.endswith("dev"):
            return story


def _story(conversation: bool, rng: Random) -> Story:
    """Two or three people, three facts of two kinds, and sometimes a filler. The introduction
    states no fact. Conversations draw the same in another order.
    """
    count = rng.choice((2, 3) if conversation else (2, 2, 3))
    # Some by their own name, some by that of their group.
    names = zip(rng.sample(WORDS.names, count), rng.sample(GROUPS, count), strict=True)
    people = [rng.choice(pair) for pair in names]
    first, second = (_facts(kind, people, rng) for kind in rng.sample(WORDS.facts, 2))
    # Two facts of the first kind: a single one could be found without the person.
    if conversation:
        rng.shuffle(first)
        rng.shuffle(second)
        facts = first[:2] + second[:1]
    else:
        facts = [*first[:2], rng.choice(first[2:] + second)]
    body = [fact.sentence for fact in facts]
    if rng.random() < 0.3:
        body.append(rng.choice(WORDS.fillers))
    rng.shuffle(body)
    *others, last = [_called(name, "a ") for name in people]
    opening = f"{', '.join(others)} and {last} met at the {rng.choice(WORDS.meeting_places)}."
    return Story(" ".join((_capitalised(opening), *body)), facts, people)


def _called(name: str, article: str) -> str:
    """Someone as sentences call them: Anna, but "the Velan"."""
    return name if name in WORDS.names else article + name


def _capitalised(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]


def _facts(kind: FactKind, people: list[str], rng: Random) -> list[Fact]:
    columns = [rng.sample(words, len(people)) for words in kind.words] or [_deeds(rng)]
    facts = []
    for name, *others in zip(people, *columns, strict=False):
        words = (_called(name, "the "), *others)
        answers = (name, *others)
        questions = [(form.format(*words), answers[i]) for form, i in kind.questions.items()]
        sentence = _capitalised(kind.sentence.format(*words))
        facts.append(Fact(sentence, questions, kind.claim, words))
    return facts


def _deeds(rng: Random) -> list[str]:
    """Deeds that decide who has an attribute; two people may differ in nothing but its negation."""
    attributes = [
        attribute
        for category in WORDS.categories.values()
        for attribute in category.attributes + category.unseen_attributes
    ]
    sample = [rng.choice(attributes), *rng.sample(attributes, 2)]
    deeds = (deed for attribute in sample for deed in (attribute, negated(attribute)))
    return list(dict.fromkeys(deeds))


def _example(name: str, story: Story, options: QuestionSplit, rng: Random) -> QAExample:
    """A question about a fact of the story, in conversations after up to two about other facts; the
    span lies inside the fact's own sentence.
    """
    if options.conversation:
        fact, *others = rng.sample(story.facts, len(story.facts))
        history = tuple(Turn(*rng.choice(other.questions)) for other in others[: rng.randint(0, 2)])
        draw = rng.random()
    else:
        fact = rng.choice(story.facts)
        history = ()
        draw = 0.0
    claims = _claims(fact, story.facts)
    example = partial(QAExample, name, story.context, history=history, dataset="stories")
    if draw < options.unanswerable:
        form = rng.choice(WORDS.unanswerable)
        question = form.format(_called(rng.choice(story.people), "the "))
        return example(question, answer_type="unknown", references=("unknown",))
    rationale = Span.locate(fact.sentence, story.context, "stories")
    if claims and draw > 1 - options.yes_no:
        question, kind = rng.choice(claims)
        return example(question, answer_type=kind, rationale=(rationale,), references=(kind,))
    question, answer = rng.choice(fact.questions)
    start = rationale.start + fact.sentence.index(answer)
    answers = (Span(start, start + len(answer), answer),)
    references = (answer,) if options.conversation else ()
    return example(question, answers, rationale=(rationale,), references=references)


def _claims(fact: Fact, facts: list[Fact]) -> list[tuple[str, AnswerType]]:
    """One question that the fact's sentence confirms, and one that it denies if another fact offers
    other words: as many of either, so that neither answer is the better guess.
    """
    others = [other for other in facts if other.claim == fact.claim and other is not fact]
    if not (fact.claim and others):
        return []
    false = (fact.words[0], *others[0].words[1:])
    return [(fact.claim.format(*fact.words), "yes"), (fact.claim.format(*false), "no")]
