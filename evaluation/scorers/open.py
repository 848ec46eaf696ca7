"""Opens scorers by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from evaluation.processes import launched
from evaluation.scorers.interface import ATTRIBUTES, LASTING, Scorer, checked_attribute
from storage.command_line import AtLeast, Count


@dataclass(frozen=True)
class ScorerOptions:
    """Who scores texts.

    Args:
        scorer: hf:PATH[@REVISION][?attribute=label&...] (a text classifier), embedded:FILE (made by
            train-scorer, needs no network), or perspective (key in PERSPECTIVE_API_KEY; ends after 2026);
            several are compared, and the first decides (default:
            hf:unitary/unbiased-toxic-roberta, its revision pinned).
        scorer_attributes: score these only, with commas between them; averages run over them (default: all
            that every scorer has).
        scorer_requests_per_minute: perspective: bound on requests, repetitions included; your quota.
        scorer_url: perspective: base URL of another endpoint.
        scorer_batch_size: hf: texts in a batch.
    """

    scorer: list[str] | None = None
    scorer_attributes: str | None = None
    scorer_requests_per_minute: Annotated[float, AtLeast(0)] = 60
    scorer_url: str | None = None
    scorer_batch_size: Count = 32


def open_scorers(options: ScorerOptions, device: str = "auto") -> list[Scorer]:
    """All that are named, or the default; ValueError for two of one name, and as `open_scorer`."""
    names = options.scorer or [LASTING]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"--scorer: {twice[0]} is named twice")
    return [open_scorer(name, options, device) for name in names]


def open_scorer(scorer: str, options: ScorerOptions, device: str = "auto") -> Scorer:
    """A scorer by name.

    Raises:
        ValueError: no such kind, its key is missing, it cannot be loaded, or it lacks attributes that
            `--scorer-attributes` does not leave out.
    """
    kind, _, where = scorer.partition(":")
    names = options.scorer_attributes.split(",") if options.scorer_attributes is not None else []
    chosen = {checked_attribute(name.strip(), "--scorer-attributes") for name in names}
    wanted = tuple(name for name in ATTRIBUTES if name in chosen)
    if scorer == "perspective":
        from evaluation.scorers.perspective import PerspectiveScorer

        return PerspectiveScorer(
            attributes=wanted or ATTRIBUTES,
            url=options.scorer_url or "",
            requests_per_minute=options.scorer_requests_per_minute / launched()[1],  # one quota for all
        )
    if kind == "hf" and where:
        from evaluation.scorers.classifier import ClassifierScorer

        return ClassifierScorer(where, attributes=wanted, device=device, batch_size=options.scorer_batch_size)
    if kind == "embedded" and where:
        from evaluation.scorers.embedded import EmbeddedScorer

        return EmbeddedScorer(where, attributes=wanted)
    raise ValueError(
        f"--scorer {scorer!r} is no scorer; write perspective, hf:FOLDER_OR_HUB_NAME or embedded:FILE"
    )
