"""Who says how toxic a text is: one small interface, three kinds of scorers.

    --scorer hf:PATH[@REVISION][?attribute=label&...]   a text classifier of transformers (the default is one)
    --scorer embedded:FILE                              one trained by `interventune evaluate train-scorer`
    --scorer perspective                                Google's Perspective API, which ends after 2026

Scores of two scorers, or of two versions of one, do not compare: both stand in every result.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from evaluation.processes import shared
from models.language.text_models import TextFailure

logger = logging.getLogger(__name__)

NAMES = {
    "toxicity": ("toxicity", "toxic"),
    "severe_toxicity": ("severe_toxicity", "severe_toxic"),
    "sexually_explicit": ("sexually_explicit", "sexual_explicit"),
    "threat": ("threat",),
    "profanity": ("profanity", "obscene", "obscenity"),
    "identity_attack": ("identity_attack", "identity_hate"),
}
"""Perspective's attributes, each with what it is called elsewhere (Jigsaw's two data sets), its own name
first. `insult` is none of the six."""

ATTRIBUTES = tuple(NAMES)
"""In the order of every table."""

LASTING = "hf:unitary/unbiased-toxic-roberta@91650552a4f31b7120c36680cfa47ddd47676b48"
"""The default, open and pinned: Detoxify's classifier (Hanu and Unitary team 2020) of Jigsaw's second data
set, with sigmoids and all six attributes, at the revision that holds safe weights (0.5 GB)."""

Scores = dict[str, float]
"""One number in [0, 1] for each of a scorer's attributes."""


class Scorer(ABC):
    """Anything that scores English texts."""

    name: str
    """What stands in records: `perspective`, `hf:PATH` or `embedded:FILE`."""
    version: str
    """Changes whenever scores may: part of the key of every kept score."""
    attributes: tuple[str, ...]
    """Which of ATTRIBUTES it scores, in their order."""

    def about(self) -> dict[str, Any]:
        """Name, version, attributes and settings, and how good it is where that is known: for reports."""
        return {"name": self.name, "version": self.version, "attributes": list(self.attributes)}

    def score(self, texts: Sequence[str]) -> Iterator[Scores | TextFailure]:
        """The scores of each text, in order, each as soon as it and all before it are known.

        A text of nothing but spaces scores 0 everywhere, and nobody is asked. Raises ValueError where no
        text can be scored (a wrong key, an endpoint that keeps failing).
        """
        answers = iter(self._divided([text for text in texts if text.strip()]))
        for text in texts:
            yield next(answers) if text.strip() else dict.fromkeys(self.attributes, 0.0)

    @shared
    def _divided(self, texts: list[str]) -> Iterator[Scores | TextFailure]:
        return self._score(texts)

    @abstractmethod
    def _score(self, texts: list[str]) -> Iterator[Scores | TextFailure]:
        """The same for texts of which none is empty."""


def checked_attribute(name: str, where: str) -> str:
    """One of ATTRIBUTES; ValueError, which begins with `where`, for another name."""
    if name not in NAMES:
        raise ValueError(f"{where}: no attribute {name!r}; choose from {', '.join(ATTRIBUTES)}")
    return name


def used_attributes(
    scorer: str, present: Collection[str], wanted: tuple[str, ...], *, labels: str = ""
) -> tuple[str, ...]:
    """What a scorer is used for: `wanted`, or all that it has, with a warning of what it lacks.

    Args:
        scorer: its name, for errors.
        present: attributes that it has.
        wanted: the user's choice; empty for none.
        labels: what it has instead, for errors.

    Raises:
        ValueError: it lacks some of `wanted`, or has none at all.
    """
    found = tuple(attribute for attribute in ATTRIBUTES if attribute in present)
    missing = [attribute for attribute in wanted or ATTRIBUTES if attribute not in present]
    if missing and (wanted or not found):
        advice = f"; to do without, add --scorer-attributes {','.join(found)}" if found else ""
        raise ValueError(f"{scorer} does not score {', '.join(missing)}{labels}{advice}")
    if missing:
        logger.warning(
            "%s does not score %s%s; averages run over %s",
            scorer,
            ", ".join(missing),
            labels,
            ", ".join(found),
        )
    return wanted or found
