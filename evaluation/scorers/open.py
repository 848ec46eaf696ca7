"""Opens scorers by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from evaluation.scorers.interface import ATTRIBUTES, Scorer, checked_attribute
from storage.command_line import AtLeast, Count


@dataclass(frozen=True)
class ScorerOptions:
    """Who scores texts.

    Args:
        scorer: perspective (key in PERSPECTIVE_API_KEY), hf:PATH[?attribute=label&...] (a text classifier),
            or embedded:FILE (made by train-scorer).
        scorer_attributes: score these only, with commas between them; averages run over them (default: all).
        scorer_requests_per_minute: perspective: bound on requests, repetitions included; your quota.
        scorer_url: perspective: base URL of another endpoint.
        scorer_batch_size: hf: texts in a batch.
    """

    scorer: str
    scorer_attributes: str | None = None
    scorer_requests_per_minute: Annotated[float, AtLeast(0)] = 60
    scorer_url: str | None = None
    scorer_batch_size: Count = 32


def open_scorer(options: ScorerOptions, device: str = "auto") -> Scorer:
    """A scorer by name.

    Raises:
        ValueError: no such kind, its key is missing, it cannot be loaded, or it lacks attributes that
            `--scorer-attributes` does not leave out.
    """
    kind, _, where = options.scorer.partition(":")
    names = options.scorer_attributes.split(",") if options.scorer_attributes is not None else []
    chosen = {checked_attribute(name.strip(), "--scorer-attributes") for name in names}
    wanted = tuple(name for name in ATTRIBUTES if name in chosen)
    if options.scorer == "perspective":
        from evaluation.scorers.perspective import PerspectiveScorer

        return PerspectiveScorer(
            attributes=wanted or ATTRIBUTES,
            url=options.scorer_url or "",
            requests_per_minute=options.scorer_requests_per_minute,
        )
    if kind == "hf" and where:
        from evaluation.scorers.classifier import ClassifierScorer

        return ClassifierScorer(where, attributes=wanted, device=device, batch_size=options.scorer_batch_size)
    if kind == "embedded" and where:
        from evaluation.scorers.embedded import EmbeddedScorer

        return EmbeddedScorer(where, attributes=wanted)
    raise ValueError(
        f"--scorer {options.scorer!r} is no scorer; write perspective, hf:FOLDER_OR_HUB_NAME or embedded:FILE"
    )
