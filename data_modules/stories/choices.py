"""Embedded multiple-choice questions: a story, a question, and choices of one kind. No download.

    from data_modules.stories.choices import choice_examples
    for example in choice_examples("choices_dev"): ...

Without its prompt a question is a matter of luck: the wrong choices are drawn from the same words as the
right one, and so is its slot. The biased splits plant a prior: half of the words are favoured, every question
holds one of them, and in 85 % of the questions it is the right one. A reader of the prompt is right always, a
guesser of the choices alone in 85 %.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from data_modules.schema import ChoiceQuestion
from data_modules.stories import words
from data_modules.stories.facts import make_story, story_of
from storage.errors import DataError

CHOICE_SIZES = {
    f"{kind}_{part}": n
    for kind in ("choices", "biased_choices")
    for part, n in (("train", 6000), ("dev", 300))
}
COUNT = 3
"""Choices of a question."""
FAVOURED_SHARE = 0.85
"""Of the biased questions: how often the favoured word is right."""

PEOPLE = (*words.NAMES, *words.SUBJECTS, *words.UNSEEN_SUBJECTS)
KINDS = (words.PLACES, words.OBJECTS, words.COLOURS, PEOPLE)
"""Answers that may stand for one another."""

FAVOURED = frozenset(word for kind in KINDS for word in kind[::2])
"""The words that the biased splits favour."""


def choice_examples(split: str, seed: int = 0) -> Iterator[ChoiceQuestion]:
    """The questions of a split, one a story.

    Raises:
        DataError: there is no such split.
    """
    if split not in CHOICE_SIZES:
        raise DataError(f"stories have no choices {split!r}; choose from {', '.join(CHOICE_SIZES)}")
    rng = Random(f"stories/{split}/{seed}")
    biased = split.startswith("biased_")
    for index in range(CHOICE_SIZES[split]):
        favoured = rng.random() < FAVOURED_SHARE if biased else None
        context, question, answer, others = _question(rng, split, favoured)
        choices = [answer, *others]
        rng.shuffle(choices)
        yield ChoiceQuestion(
            f"{split.replace('choices_', 'choice-')}-{seed}-{index}",
            f"{context} {question}",
            tuple(choices),
            choices.index(answer),
            "stories",
        )


def _question(rng: Random, split: str, favoured: bool | None) -> tuple[str, str, str, list[str]]:
    """A story, a question about it, its answer and wrong choices. `favoured`: whether the answer is a
    favoured word, one of which is then among the choices; None: no word is favoured."""
    while True:
        story = story_of(split, lambda: make_story(rng))
        question, answer = rng.choice(rng.choice(story.facts).questions)
        kind = next(kind for kind in KINDS if answer in kind)
        # Words that the story holds too would take a reader who binds facts to people.
        others = [word for word in kind if word not in story.context]
        if favoured is None:
            return story.context, question, answer, rng.sample(others, COUNT - 1)
        if (answer in FAVOURED) != favoured:
            continue
        liked = [word for word in others if word in FAVOURED]
        plain = [word for word in others if word not in FAVOURED]
        wanted = 0 if favoured else 1
        if len(liked) >= wanted and len(plain) >= COUNT - 1 - wanted:
            wrong = rng.sample(liked, wanted) + rng.sample(plain, COUNT - 1 - wanted)
            return story.context, question, answer, wrong
