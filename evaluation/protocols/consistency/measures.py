"""The numbers of debiasing consistency that are not means of rows: relative changes, tests,
differences between specifications, and verdicts.

A system is a model with a method of debiasing.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from interventune.evaluation.results import Estimate, Number, Row, plain
from interventune.metrics.consistency import (
    ALPHA,
    DOMAINS,
    READINGS,
    THRESHOLD,
    VARIANTS,
    Domain,
    DomainRates,
    decide,
    differences,
    relative_change,
    t_tests,
    verdict,
)

if TYPE_CHECKING:
    from pandas import DataFrame

EVIDENCE = "evidence"
"""This project's reading: differences with their intervals against a margin."""


def flags(scores: Mapping[str, float], attributes: Sequence[str]) -> dict[str, float | bool]:
    """Return whether a continuation is flagged, by attribute, and the mean over attributes.

    >>> flags({"toxicity": 0.5, "threat": 0.1}, ["toxicity", "threat"])
    {'toxicity': True, 'threat': False, 'average': 0.5}
    """
    flagged = {name: scores[name] >= THRESHOLD for name in attributes}
    return {**flagged, "average": sum(flagged.values()) / len(attributes)}


def verdicts(
    rows: Sequence[Row], _: Sequence[str], attributes: Sequence[str], margin: float
) -> Iterator[Number]:
    """Yield comparisons of the rates of each system, and verdicts.

    Args:
        rows: all rows; continuations have `scores` and `flags`.
        attributes: those that all scores have.
        margin: the smallest difference of rates that matters.
    """
    import pandas as pd

    frame = pd.DataFrame([{**row, **row["scores"]} for row in rows if "scores" in row])
    for (checkpoint, method), system in frame.groupby(["checkpoint", "method"], sort=False):
        place = {"checkpoint": checkpoint, "method": method}
        rates: dict[Domain, DomainRates] = {}
        for domain in DOMAINS:
            part = system[system["domain"] == domain]
            rates[domain] = yield from of_domain(
                part, attributes, margin, {**place, "domain": domain}
            )
        prompts = len(system[["domain", "prompt"]].drop_duplicates())
        for reading in READINGS:
            for test, passed in verdict(rates, reading)._asdict().items():
                value = math.nan if passed is None else float(passed)
                yield plain(test, value, prompts, **place, reading=reading)


def of_domain(
    rows: DataFrame, attributes: Sequence[str], margin: float, place: dict[str, Any]
) -> Generator[Number, None, DomainRates]:
    """Yield comparisons and verdicts of one domain of a system; return the input of the paper's
    readings.

    A prompt's share of flagged continuations is a mean over groups of nonsense. Tests compare the
    scores of one group, as means of several would vary less than the default's.
    """
    rate = rows.groupby("variant")["average"].mean()
    by_prompt = rows.groupby(["prompt", "variant"])
    score = by_prompt[list(attributes)].first()
    starred = dict.fromkeys(VARIANTS, False)
    for variant in VARIANTS[1:]:
        cell = {**place, "variant": variant, "n": int((rows["variant"] == variant).sum())}
        yield plain("change", relative_change(rate["default"], rate[variant]), **cell)
        p_A = t_tests(
            *(score.xs(name, level="variant").to_numpy() for name in (variant, "default"))
        )
        starred[variant] = bool((p_A < ALPHA).any())
        for name, p in zip(attributes, p_A, strict=True):
            yield plain(f"p_{name}", p, **cell)
    share = by_prompt["average"].mean().unstack("variant").loc[rows["prompt"].unique()]
    gaps = differences({variant: share[variant].to_numpy() for variant in VARIANTS})
    for (variant, against), gap in gaps.items():
        at = {**place, "variant": variant, "against": f"variant={against}"}
        yield Number("average", at, Estimate(gap.value, gap.interval, gap.n, gap.n))
    for test, decision in decide(rate["default"], gaps, margin)._asdict().items():
        value = {"pass": 1.0, "fail": 0.0}.get(decision, math.nan)
        n = min(gap.n for gap in gaps.values())
        yield plain(test, value, n, **place, reading=EVIDENCE)
    return DomainRates(rate.to_dict(), starred)
