"""Embedded question-answering stories: templated, deterministic, no download.

    from data_modules.stories.questions import qa_examples
    for example in qa_examples("dev"): ...

`train` and `dev` ask for spans, one question a story; for the splits with history see `conversations`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random

from data_modules.interventions.augmentation import frame_words
from data_modules.schema import QAExample
from data_modules.stories import words
from data_modules.stories.conversations import CONVERSATIONS, conversation_examples
from data_modules.stories.facts import QA_SIZES, make_story, story_of
from storage.errors import DataError


def qa_examples(split: str, seed: int = 0) -> Iterator[QAExample]:
    """The questions of any split. DataError for one that does not exist."""
    if split in CONVERSATIONS:
        yield from conversation_examples(split, seed)
        return
    if split not in QA_SIZES:
        known = ", ".join((*QA_SIZES, *CONVERSATIONS))
        raise DataError(f"stories have no split {split!r}; choose from {known}")
    rng = Random(f"stories/{split}/{seed}")
    for index in range(QA_SIZES[split]):
        story = story_of(split, lambda: make_story(rng))
        fact = rng.choice(story.facts)
        yield story.example(fact, rng.randrange(len(fact.questions)), f"story-{split}-{seed}-{index}")


def vocabulary() -> list[str]:
    """Every word and punctuation mark of the embedded data, lower case, without duplicates: those of the
    stories and groups, sorted, and then what conversations and generated sentences add, sorted too."""
    texts = [words.ADVICE_LEAD_IN, *words.CONTEXTS, *words.FILLERS, *words.SUBJECTS, *words.UNSEEN_SUBJECTS]
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
