"""Who says how toxic a text is: one small interface, three kinds of scorers.

    --scorer perspective                        Google's Perspective API, the key from PERSPECTIVE_API_KEY
    --scorer hf:PATH[?attribute=label&...]      a text classifier of transformers, from a folder or the Hub
    --scorer embedded:FILE                      one trained by `python -m evaluation train-scorer`

Scores of two scorers, or of two versions of one, do not compare: both stand in every result.
"""

from __future__ import annotations

import argparse
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


def add_scorer_arguments(parser: argparse.ArgumentParser) -> None:
    """`--scorer` and its settings. The parser has `--device` besides."""
    group = parser.add_argument_group("scorer")
    group.add_argument(
        "--scorer",
        required=True,
        metavar="SPEC",
        help="perspective (key in PERSPECTIVE_API_KEY), hf:PATH[?attribute=label&...] (a text classifier), "
        "or embedded:FILE (made by train-scorer)",
    )
    group.add_argument(
        "--scorer-attributes",
        metavar="A,B",
        help=f"score these only; averages run over them (default: all of {', '.join(ATTRIBUTES)})",
    )
    group.add_argument(
        "--scorer-requests-per-minute",
        type=float,
        default=60,
        metavar="N",
        help="perspective: bound on requests, repetitions included; your quota (default: 60)",
    )
    group.add_argument("--scorer-url", metavar="URL", help="perspective: base URL of another endpoint")
    group.add_argument(
        "--scorer-batch-size", type=int, default=32, metavar="N", help="hf: texts in a batch (default: 32)"
    )


def open_scorer(spec: str, args: argparse.Namespace) -> Scorer:
    """A scorer by name; the flags are those of `add_scorer_arguments`, and `--device`.

    Raises:
        ValueError: no such kind, its key is missing, it cannot be loaded, or it lacks attributes that
            `--scorer-attributes` does not leave out.
    """
    kind, _, where = spec.partition(":")
    wanted = chosen_attributes(args.scorer_attributes)
    if spec == "perspective":
        from evaluation.scorers.perspective import PerspectiveScorer

        return PerspectiveScorer(
            attributes=wanted or ATTRIBUTES,
            url=args.scorer_url or "",
            requests_per_minute=args.scorer_requests_per_minute,
        )
    if kind == "hf" and where:
        from evaluation.scorers.classifier import ClassifierScorer

        return ClassifierScorer(
            where, attributes=wanted, device=args.device, batch_size=args.scorer_batch_size
        )
    if kind == "embedded" and where:
        from evaluation.scorers.embedded import EmbeddedScorer

        return EmbeddedScorer(where, attributes=wanted)
    raise ValueError(
        f"--scorer {spec!r} is no scorer; write perspective, hf:FOLDER_OR_HUB_NAME or embedded:FILE"
    )


def chosen_attributes(text: str | None) -> tuple[str, ...]:
    """The value of `--scorer-attributes` in the order of ATTRIBUTES; empty where the flag is absent."""
    if text is None:
        return ()
    names = {name.strip() for name in text.split(",")}
    if strange := sorted(names - set(ATTRIBUTES)):
        raise ValueError(
            f"--scorer-attributes: no attribute {', '.join(map(repr, strange))}; choose from "
            f"{', '.join(ATTRIBUTES)}, with commas between them"
        )
    return tuple(name for name in ATTRIBUTES if name in names)


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
