"""The word lists of the embedded data (words.yaml)."""

from typing import Literal

from pydantic import BaseModel

from interventune.data_modules.schema.groups import AdviceClass
from interventune.data_modules.schema.questions import TextPair, Texts
from interventune.storage.documents import own_yaml

Frames = tuple[TextPair, ...]
"""Wordings that deny a link between {x} and {y}, each paired with one that claims it."""


class Category(BaseModel):
    """A kind of judgement: attributes, and noun phrases for the topic."""

    attributes: Texts
    unseen_attributes: Texts
    topics: Texts


class GroupSplit(BaseModel):
    """What the groups of a split are made of."""

    subjects: Texts
    unseen_attributes: bool
    contexts: Literal["known", "held_out", "all"]
    unseen_advice: bool
    rounds: int
    """Groups per (pair, attribute) and class."""
    classes: tuple[AdviceClass, ...]


class FactKind(BaseModel):
    """Templates of facts; {0} is the person, {1} and {2} are drawn words."""

    sentence: str
    questions: dict[str, int]
    """Questions that the sentence answers, with the number of the answer."""
    words: tuple[Texts, ...] = ()
    claim: str = ""


class QuestionSplit(BaseModel):
    """What the questions of a split are like."""

    size: int
    conversation: bool = False
    yes_no: float = 0.0
    unanswerable: float = 0.0


class Words(BaseModel):
    """The lists of words.yaml, where each is explained."""

    subjects: Texts
    unseen_subjects: Texts
    names: Texts
    meeting_places: Texts
    places: Texts
    objects: Texts
    colours: Texts
    fillers: Texts
    facts: tuple[FactKind, ...]
    unanswerable: Texts
    question_splits: dict[str, QuestionSplit]
    choice_splits: dict[str, int]
    contexts: Texts
    categories: dict[str, Category]
    conversation_words: Texts
    group_phrases: Texts
    other_phrases: Texts
    other_topics: Texts
    group_splits: dict[str, GroupSplit]
    frames: Frames
    unseen_frames: Frames
    good: Texts
    bad: Texts
    opinions: Texts
    opinion_end: str


WORDS = own_yaml(__file__, Words)


def negated(attribute: str) -> str:
    """Negate an attribute. The same word negates all of them, as in UnQover's gender set ("can
    never be"): a tiny model can learn its meaning, but would have to learn hand-written antonyms
    one by one.
    """
    return f"never {attribute}"
