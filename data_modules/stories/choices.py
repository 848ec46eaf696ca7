"""Embedded multiple-choice questions: a story, a question, and choices of one kind. No download.

    from data_modules.stories.choices import choice_examples
    for example in choice_examples("choices_dev"): ...

Without its prompt a question is a matter of luck: the wrong choices are drawn from the same words as the
right one, and so is its slot.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from data_modules.schema import ChoiceQuestion
from data_modules.stories import words
from data_modules.stories.questions import make_story, story_of
from storage.errors import DataError

CHOICE_SIZES = {"choices_train": 6000, "choices_dev": 300}
COUNT = 3
"""Choices of a question."""
PEOPLE = (*words.NAMES, *words.SUBJECTS, *words.UNSEEN_SUBJECTS)
KINDS = (words.PLACES, words.OBJECTS, words.COLOURS, PEOPLE)
"""Answers that may stand for one another."""


def choice_examples(split: str, seed: int = 0) -> Iterator[ChoiceQuestion]:
    """The questions of a split, one a story. DataError where there is no such split."""
    if split not in CHOICE_SIZES:
        raise DataError(f"stories have no choices {split!r}; choose from {', '.join(CHOICE_SIZES)}")
    rng = Random(f"stories/{split}/{seed}")
    for index in range(CHOICE_SIZES[split]):
        story = story_of(split, lambda: make_story(rng))
        question, answer = rng.choice(rng.choice(story.facts).questions)
        kind = next(kind for kind in KINDS if answer in kind)
        # Words that the story holds too would take a reader who binds facts to people.
        others = [word for word in kind if word not in story.context]
        choices = [answer, *rng.sample(others, COUNT - 1)]
        rng.shuffle(choices)
        name = f"{split.replace('choices_', 'choice-')}-{seed}-{index}"
        prompt = f"{story.context} {question}"
        yield ChoiceQuestion(name, prompt, tuple(choices), choices.index(answer), "stories")
