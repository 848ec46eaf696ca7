"""From scored continuations to what tables and verdicts rest on.

Shape letters: G groups, N prompts, A attributes.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from evaluation.protocols.consistency.scoring import count_failures, score_array
from evaluation.scorers.scorers import Scores
from metrics.consistency import (
    VARIANTS,
    Array,
    Domain,
    DomainRates,
    TTest,
    Variant,
    average,
    expected_maximum,
    rates,
    t_tests,
)
from models.language.text_models import TextFailure

log = logging.getLogger(__name__)


class Part(NamedTuple):
    """What stands in front of all prompts of one variant."""

    variant: Variant
    group: int | None
    """Of nonsense."""
    texts: tuple[str, ...]
    """Prefixes (self), one instruction (instructive), none (default)."""


class Continued(NamedTuple):
    """The continuations of a domain's prompts in one part, in their order."""

    domain: Domain
    part: Part
    texts: list[str | TextFailure]


def check_scores(continued: Sequence[Continued], scores: Mapping[str, Scores | TextFailure]) -> None:
    """ValueError where no number can be told of a part; a warning where texts are missing."""
    for each in continued:
        missing = count_failures(each.texts, scores)
        if missing.total() == len(each.texts):
            reason = missing.most_common(1)[0][0]
            raise ValueError(
                f"no scores at all of {each.domain} prompts, {each.part.variant} ({reason}); nothing is "
                "compared. The same command goes on from what is finished"
            )
        if missing:
            told = ", ".join(f"{count} {reason}" for reason, count in missing.most_common())
            log.warning("%s, %s: %s; not counted", each.domain, each.part.variant, told)


class VariantResult(NamedTuple):
    """A variant on one domain."""

    rate_A: Array
    maximum_A: Array
    test: TTest
    groups: tuple[float, ...]
    """Average rate of each group of nonsense; else the one average."""
    n: int
    """Continuations with scores."""


Results = Mapping[Domain, Mapping[Variant, VariantResult]]


def domain_results(
    domain: Domain,
    continued: Sequence[Continued],
    scores: Mapping[str, Scores | TextFailure],
    attributes: Sequence[str],
) -> dict[Variant, VariantResult]:
    """All variants of a domain. Groups of nonsense: rates are averaged, and a prompt's score is its mean."""
    arrays: dict[Variant, list[Array]] = {}
    for each in continued:
        if each.domain == domain:
            arrays.setdefault(each.part.variant, []).append(score_array(each.texts, scores, attributes))
    pooled = {variant: mean_score(its) for variant, its in arrays.items()}
    found: dict[Variant, VariantResult] = {}
    for variant in VARIANTS:
        rate_GA = np.stack([rates(score_NA) for score_NA in arrays[variant]])
        maximum_GA = np.stack([expected_maximum(score_NA[:, None]) for score_NA in arrays[variant]])
        found[variant] = VariantResult(
            rate_A=rate_GA.mean(0),
            maximum_A=maximum_GA.mean(0),
            test=t_tests(pooled[variant], pooled["default"]),
            groups=tuple(average(rate_A) for rate_A in rate_GA),
            n=int(sum((~np.isnan(score_NA[:, 0])).sum() for score_NA in arrays[variant])),
        )
    return found


def mean_score(arrays: Sequence[Array]) -> Array:
    """Mean over groups of each prompt's scores, (N, A), over the groups that have one."""
    score_GNA = np.stack(arrays)
    count_NA = (~np.isnan(score_GNA)).sum(0)
    least_NA = np.fmin.reduce(score_GNA)
    with np.errstate(invalid="ignore"):
        # From the least on: the mean of equal scores is that score to the bit, no difference to be tested.
        mean_NA: Array = least_NA + np.nansum(score_GNA - least_NA, axis=0) / count_NA
    return mean_NA


def domain_rates(results: Mapping[Variant, VariantResult]) -> DomainRates:
    """What verdicts rest on."""
    return DomainRates(
        {variant: average(found.rate_A) for variant, found in results.items()},
        {variant: bool(found.test.starred.any()) for variant, found in results.items()},
    )
