"""The numbers of debiasing consistency that are no means of rows: relative changes, tests, differences
between specifications, and verdicts.

A system is a model with a method of debiasing. Shape letters: N prompts, A attributes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evaluation.results import Results, Row
from metrics.consistency import (
    ALPHA,
    CONTROLS,
    DOMAINS,
    READINGS,
    THRESHOLD,
    VARIANTS,
    Domain,
    DomainRates,
    Variant,
    decide,
    differences,
    relative_change,
    t_tests,
    verdict,
)

if TYPE_CHECKING:
    from pandas import DataFrame

CLAIMS: dict[str, tuple[tuple[Variant, Variant], ...]] = {
    "effect": (("original", "default"),),
    "polarity": (("opposite", "default"),),
    "importance": tuple((control, "original") for control in CONTROLS),
}
"""The differences that decide each test of the evidence."""
EVIDENCE = "evidence"
"""The reading that is ours: differences with their intervals against a margin."""


def flags(scores: Mapping[str, float], attributes: Sequence[str]) -> dict[str, float | bool]:
    """Whether a continuation is flagged, by attribute, and the mean over attributes.

    >>> flags({"toxicity": 0.5, "threat": 0.1}, ["toxicity", "threat"])
    {'toxicity': True, 'threat': False, 'average': 0.5}
    """
    flagged = {name: scores[name] >= THRESHOLD for name in attributes}
    return {**flagged, "average": sum(flagged.values()) / len(attributes)}


def add_verdicts(results: Results, rows: Sequence[Row], attributes: Sequence[str], margin: float) -> None:
    """Add to the rates of each system what they are compared with, and what follows.

    Args:
        results: holds `average` by checkpoint, method, domain and variant.
        rows: of all continuations: with `scores`, and `flags`.
        attributes: that all of them have.
        margin: the smallest difference of rates that matters.
    """
    import pandas as pd

    frame = pd.DataFrame(
        [
            {name: row[name] for name in ("checkpoint", "method", "domain", "variant", "prompt", "average")}
            | {name: row["scores"][name] for name in attributes}
            for row in rows
            if "continuation" in row
        ]
    )
    for (checkpoint, method), system in frame.groupby(["checkpoint", "method"], sort=False):
        place = {"checkpoint": checkpoint, "method": method}
        found: dict[Domain, DomainRates] = {
            domain: add_domain(
                results, system[system["domain"] == domain], attributes, margin, {**place, "domain": domain}
            )
            for domain in DOMAINS
        }
        prompts = sum(system[system["domain"] == domain]["prompt"].nunique() for domain in DOMAINS)
        for reading in READINGS:
            for test, passed in verdict(found, reading)._asdict().items():
                value = math.nan if passed is None else float(passed)
                results.add(test, value, n=prompts, **place, reading=reading)


def add_domain(
    results: Results, rows: DataFrame, attributes: Sequence[str], margin: float, place: dict[str, Any]
) -> DomainRates:
    """The same of one domain of a system; returns what the paper's readings rest on.

    A prompt's score and its share of flagged continuations are means over groups of nonsense.
    """
    by_prompt = rows.groupby(["prompt", "variant"])
    share = by_prompt["average"].mean().unstack("variant").loc[rows["prompt"].unique()]
    # Means of equal scores are equal: a test would find rounding errors that are all alike.
    score = by_prompt[list(attributes)].mean().round(12)
    averages: dict[Variant, float] = {}
    starred: dict[Variant, bool] = {}
    for variant in VARIANTS:
        number = results.at("average", **place, variant=variant)
        assert number is not None
        averages[variant], cell = number["value"], {**place, "variant": variant, "n": number["n"]}
        p_A = t_tests(*(score.xs(name, level="variant").to_numpy() for name in (variant, "default")))
        starred[variant] = variant != "default" and bool((p_A < ALPHA).any())
        if variant != "default":
            results.add("change", relative_change(averages["default"], averages[variant]), **cell)
            for name, p in zip(attributes, p_A, strict=True):
                results.add(f"p_{name}", p, **cell)
    found = differences({variant: share[variant].to_numpy() for variant in VARIANTS})
    for (variant, against), gap in found.items():
        cell = {**place, "variant": variant, "against": f"variant={against}"}
        results.add("average", gap.value, n=gap.n, interval=gap.interval, **cell)
    for test, decision in decide(averages["default"], found, margin)._asdict().items():
        value = {"pass": 1.0, "fail": 0.0}.get(decision, math.nan)
        n = min(found[pair].n for pair in CLAIMS[test])
        results.add(test, value, n=n, **place, reading=EVIDENCE)
    return DomainRates(averages, starred)
