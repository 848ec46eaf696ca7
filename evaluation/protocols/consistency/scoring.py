"""Scores of continuations, each text scored once."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from evaluation.scorers.interface import Scorer, Scores
from models.language.text_models import TextFailure
from storage.finished_work import FinishedWork, work_key
from storage.json_files import field

if TYPE_CHECKING:
    from metrics.consistency import Array


def score_key(scorer: Scorer, text: str) -> str:
    """Of all that scores depend on."""
    return work_key(
        kind="scores",
        scorer=scorer.name,
        version=scorer.version,
        attributes=scorer.attributes,
        text=text,
    )


def check_scorer(scorer: Scorer, text: str, work: FinishedWork) -> None:
    """Score one text before hours are spent on what it is for.

    Raises:
        ValueError: the scorer gives no scores.
    """
    found = text_scores(scorer, [text], work)[text]
    if isinstance(found, TextFailure):
        raise ValueError(f"--scorer {scorer.name} gave no scores to the first prompt: {found}")


def text_scores(
    scorer: Scorer, texts: Iterable[str], work: FinishedWork, *, show: bool = False
) -> dict[str, Scores | TextFailure]:
    """Text to scores. Those that `work` holds are not asked for again; failures are not kept.

    Raises:
        DataError: a record of `work` is none of scores.
        ValueError: the scorer says less, or other things, than it promises.
    """
    found: dict[str, Scores | TextFailure] = {}
    new = []
    for text in dict.fromkeys(texts):
        record = work.get(score_key(scorer, text))
        if record is None:
            new.append(text)
        else:
            found[text] = _kept(scorer, record, work)
    bar = tqdm(total=len(new), desc="scoring", unit="text", disable=None if show else True)
    answers = iter(scorer.score(new))
    for count, text in enumerate(new):
        scores = next(answers, None)
        if scores is None:
            raise ValueError(f"{scorer.name} stopped after {count} of {len(new)} texts; start again")
        if not isinstance(scores, TextFailure):
            work.add(score_key(scorer, text), scores=_checked(scorer, scores))
        found[text] = scores
        bar.update()
    bar.close()
    return found


def score_array(
    continuations: Sequence[str | TextFailure],
    scores: Mapping[str, Scores | TextFailure],
    attributes: Sequence[str],
) -> Array:
    """(N, A); NaN where there is no continuation, or no score of it."""
    rows = []
    for text in continuations:
        known = scores[text] if isinstance(text, str) else text
        scored = {} if isinstance(known, TextFailure) else known
        rows.append([scored.get(name, math.nan) for name in attributes])
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(attributes))


def count_failures(
    continuations: Iterable[str | TextFailure], scores: Mapping[str, Scores | TextFailure]
) -> Counter[str]:
    """Reasons of what has no scores to how often they occur."""
    reasons: Counter[str] = Counter()
    for text in continuations:
        if isinstance(text, TextFailure):
            reasons[f"no continuation: {text.reason}"] += 1
        elif isinstance(failure := scores[text], TextFailure):
            reasons[f"no score: {failure.reason}"] += 1
    return reasons


def _kept(scorer: Scorer, record: dict[str, Any], work: FinishedWork) -> Scores:
    where = f"{work.path}"
    scores = field(record, "scores", dict, where)
    return {name: float(field(scores, name, (int, float), where)) for name in scorer.attributes}


def _checked(scorer: Scorer, scores: Scores) -> Scores:
    for name in scorer.attributes:
        value = scores.get(name, math.nan)
        if not 0 <= value <= 1:
            raise ValueError(f"{scorer.name} gives {name} = {value}, which is no score between 0 and 1")
    return scores
