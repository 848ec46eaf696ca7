"""Scores of continuations, each text scored once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tqdm import tqdm

from evaluation.protocols.consistency.continuations import Continued, Part, finished
from evaluation.scorers.interface import Scorer, Scores
from metrics.consistency import Domain
from models.language.text_models import TextFailure
from storage.errors import DataError
from storage.finished_work import FinishedWork, work_key


class Scored(NamedTuple):
    """The scores of a domain's prompts in one part, in their order."""

    domain: Domain
    part: Part
    texts: list[str | TextFailure]
    """Continuations."""
    scores: list[Scores | TextFailure]
    """Theirs; why there are none, where there is no continuation or no score."""


def scored_continuations(scorer: Scorer, continued: Sequence[Continued], work: FinishedWork) -> list[Scored]:
    """All continuations with their scores; errors as of `text_scores`."""
    texts = [text for each in continued for text in each.texts if isinstance(text, str)]
    scores = text_scores(scorer, texts, work, show=True)

    def score(text: str | TextFailure) -> Scores | TextFailure:
        if isinstance(text, TextFailure):
            return TextFailure(f"no continuation: {text.reason}", text.detail)
        known = scores[text]
        if isinstance(known, TextFailure):
            return TextFailure(f"no score: {known.reason}", known.detail)
        return known

    return [Scored(*each, [score(text) for text in each.texts]) for each in continued]


def check_scorer(scorer: Scorer, text: str, work: FinishedWork) -> None:
    """Score one text before hours are spent on what it is for; ValueError where there are no scores."""
    scores = text_scores(scorer, [text], work)[text]
    if isinstance(scores, TextFailure):
        raise ValueError(f"--scorer {scorer.name} gave no scores to the first prompt: {scores}")


def text_scores(
    scorer: Scorer, texts: Iterable[str], work: FinishedWork, *, show: bool = False
) -> dict[str, Scores | TextFailure]:
    """Text to scores.

    Raises:
        DataError: a record of `work` is none of scores.
        ValueError: the scorer says less, or other things, than it promises.
    """
    text_of = {
        work_key(
            kind="scores",
            scorer=scorer.name,
            version=scorer.version,
            attributes=scorer.attributes,
            text=text,
        ): text
        for text in texts
    }

    def ask(new: list[str]) -> Iterator[Scores | TextFailure]:
        return (_checked(scores, scorer.attributes, scorer.name) for scores in scorer.score(new))

    with tqdm(total=len(text_of), desc="scoring", unit="text", disable=None if show else True) as bar:
        answers = finished(work, text_of, ask, "scores", dict[str, float], bar)
    return {
        text_of[key]: _checked(scores, scorer.attributes, str(work.path)) for key, scores in answers.items()
    }


def _checked(scores: Scores | TextFailure, attributes: Sequence[str], where: str) -> Scores | TextFailure:
    if isinstance(scores, TextFailure):
        return scores
    for name in attributes:
        value = scores.get(name, math.nan)
        if not 0 <= value <= 1:
            raise DataError(f"{where}: {name} = {value} is no score between 0 and 1")
    return scores
