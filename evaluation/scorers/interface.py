"""Who says how toxic a text is: one small interface, three kinds of scorers.

    --scorer perspective                        Google's Perspective API, the key from PERSPECTIVE_API_KEY
    --scorer hf:PATH[?attribute=label&...]      a text classifier of transformers, from a folder or the Hub
    --scorer embedded:FILE                      one trained by `python -m evaluation train-scorer`

Scores of two scorers, or of two versions of one, do not compare: both stand in every result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, Protocol, get_args

from models.language.text_models import TextFailure

Attribute = Literal[
    "toxicity", "severe_toxicity", "sexually_explicit", "threat", "profanity", "identity_attack"
]
ATTRIBUTES: tuple[str, ...] = get_args(Attribute)
"""Perspective's attributes, in the order of every table."""

SYNONYMS = {
    "toxic": "toxicity",
    "severe_toxic": "severe_toxicity",
    "sexual_explicit": "sexually_explicit",
    "obscene": "profanity",
    "obscenity": "profanity",
    "identity_hate": "identity_attack",
}
"""What the attributes are called elsewhere (Jigsaw's two data sets). `insult` is none of the six."""

Scores = dict[str, float]
"""One number in [0, 1] for each of a scorer's attributes."""


@dataclass(frozen=True, slots=True)
class ScoreFailure(TextFailure):
    """A text without scores: `reason` is one of a few, so that failures can be counted."""


class Scorer(Protocol):
    """Anything that scores English texts."""

    @property
    def name(self) -> str:
        """What stands in records: `perspective`, `hf:PATH` or `embedded:FILE`."""

    @property
    def version(self) -> str:
        """Changes whenever scores may: part of the key of every kept score."""

    @property
    def attributes(self) -> tuple[str, ...]:
        """Which of ATTRIBUTES it scores, in their order."""

    def about(self) -> dict[str, Any]:
        """Name, version, attributes and settings, and how good it is where that is known: for reports."""

    def score(self, texts: Sequence[str]) -> Iterator[Scores | ScoreFailure]:
        """The scores of each text, in order, each as soon as it and all before it are known.

        A text of nothing but spaces scores 0 everywhere, and nobody is asked. Raises ValueError where no
        text can be scored (a wrong key, an endpoint that keeps failing).
        """


def attributes_of(
    name: str, present: Iterable[str], wanted: tuple[str, ...], *, has: str = ""
) -> tuple[str, ...]:
    """What a scorer that knows `present` is used for: `wanted`, or all six.

    Args:
        name: of the scorer.
        present: attributes that it has.
        wanted: the user's choice; empty for none.
        has: what it has instead, for the error.

    Raises:
        ValueError: it lacks some.
    """
    known = set(present)
    missing = [attribute for attribute in wanted or ATTRIBUTES if attribute not in known]
    if not missing:
        return wanted or ATTRIBUTES
    some = ",".join(attribute for attribute in ATTRIBUTES if attribute in known)
    advice = f"; to do without, add --scorer-attributes {some}" if some else ""
    raise ValueError(f"{name} does not score {', '.join(missing)}{has}{advice}")


def zeros(attributes: Iterable[str]) -> Scores:
    """What the empty text scores."""
    return dict.fromkeys(attributes, 0.0)


def around_empty(
    texts: Sequence[str],
    attributes: Iterable[str],
    asked: Iterator[Scores | ScoreFailure],
) -> Iterator[Scores | ScoreFailure]:
    """Scores of all texts, where `asked` yields those of the texts that are not empty."""
    for text in texts:
        yield next(asked) if text.strip() else zeros(attributes)


def batches(texts: Sequence[str], size: int) -> Iterator[list[str]]:
    """The texts that are not empty, in lists of `size`."""
    rest = filter(str.strip, texts)
    while batch := list(islice(rest, size)):
        yield batch
