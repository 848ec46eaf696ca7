"""The tables of debiasing consistency."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from evaluation.old_tables import Cell, Table
from evaluation.protocols.consistency.results import Results, VariantResult
from metrics.consistency import Domain, DomainRates, Reading, Variant, Verdict, average, relative_change

CAPTION = (
    "Percent of continuations; in brackets the change relative to the default (↓ less), * where scores "
    "differ significantly. Nonsense: mean of its groups."
)
BEHIND: dict[str, tuple[Variant, ...]] = {
    "polarity": ("default", "original", "opposite"),
    "importance": ("original", "nonsense", "blank"),
}
"""What each test compares."""


def rate_table(domain: Domain, results: Mapping[Variant, VariantResult], attributes: Sequence[str]) -> Table:
    """Rates by variant and attribute, as the paper's tables."""
    default = results["default"]
    rows: list[tuple[Cell, ...]] = []
    for variant, found in results.items():
        cells = [
            rate_cell(float(rate), float(before), bool(star), variant == "default")
            for rate, before, star in zip(found.rate_A, default.rate_A, found.test.starred, strict=True)
        ]
        overall = rate_cell(average(found.rate_A), average(default.rate_A), False, variant == "default")
        rows.append((variant, *cells, overall, found.n))
    header = ("", *titles(attributes), "average", "n")
    return Table(f"Rates on {domain} prompts, in percent", header, tuple(rows), CAPTION)


def titles(attributes: Sequence[str]) -> list[str]:
    """Attributes as people write them."""
    return [name.replace("_", " ") for name in attributes]


def rate_cell(rate: float, default: float, star: bool, plain: bool = False) -> str:
    """Percent with the relative change.

    >>> rate_cell(0.097, 0.222, True), rate_cell(0.0, 0.0, False), rate_cell(0.1, 0.0, False)
    ('9.70 (↓56.3%)*', '0.00 (-)', '10.00 (↑)')
    """
    shown = f"{100 * rate:.2f}"
    if plain:
        return shown
    change = relative_change(default, rate)
    arrow = "↓" if rate < default else "↑"
    told = "-" if change == 0 else arrow if math.isnan(change) else f"{arrow}{100 * abs(change):.1f}%"
    return f"{shown} ({told}){'*' if star else ''}"


def checklist_table(verdicts: Mapping[Reading, Verdict]) -> Table:
    """The paper's checklist, a row for each reading."""
    rows = tuple(
        (
            reading,
            tick(found.polarity),
            tick(found.importance),
            tick(found.transferability),
            *(tick(test) for test in found.domains["neutral"]),
        )
        for reading, found in verdicts.items()
    )
    header = (
        "reading",
        "polarity",
        "importance",
        "transferability",
        "neutral: polarity",
        "neutral: importance",
    )
    caption = "Polarity and importance of the adversarial prompts; transferability asks for both on both."
    return Table("Checklist", header, rows, caption)


def tick(passed: bool | None) -> str:
    """pass, fail, or not asked."""
    return "not asked" if passed is None else "pass" if passed else "fail"


def reasons_table(rests: Mapping[Domain, DomainRates], verdicts: Mapping[Reading, Verdict]) -> Table:
    """The numbers that decide, one row for each test on a domain."""
    rows = []
    for domain, rest in rests.items():
        shown = {
            variant: f"{100 * rate:.2f}{'*' if rest.starred[variant] else ''}"
            for variant, rate in rest.average.items()
        }
        for test, variants in BEHIND.items():
            numbers = ", ".join(f"{variant} {shown[variant]}" for variant in variants)
            ticks = (tick(getattr(found.domains[domain], test)) for found in verdicts.values())
            rows.append((f"{domain}: {test}", numbers, *ticks))
    header = ("test", "average rates in percent (* any attribute differs from the default)", *verdicts)
    return Table("Behind the checklist", header, tuple(rows))


def perplexity_table(perplexities: Mapping[str, float]) -> Table:
    """Of a text, without and with debiasing."""
    row = ("perplexity", *(f"{value:.2f}" for value in perplexities.values()))
    return Table(
        "Perplexity of a text",
        ("", *perplexities),
        (row,),
        "With self-debiasing by these specifications, in chunks that do not overlap, each weighted by all of "
        "its tokens, as the authors' code does.",
    )


def p_table(domain: Domain, results: Mapping[Variant, VariantResult], attributes: Sequence[str]) -> Table:
    """Both tests of every variant."""
    rows = tuple(
        (
            variant,
            *(
                f"{independent:.2g} / {paired:.2g}"
                for independent, paired in zip(found.test.independent_A, found.test.paired_A, strict=True)
            ),
        )
        for variant, found in results.items()
        if variant != "default"
    )
    caption = (
        "p of scores against the default's, two-sided: Student's t-test, independent / paired by prompt; nan "
        "where scores are all alike. Nonsense: the mean of its groups for each prompt."
    )
    return Table(f"Significance on {domain} prompts", ("", *titles(attributes)), rows, caption)


def maximum_table(results: Results, attributes: Sequence[str]) -> Table:
    """Expected maximum scores; with one continuation a prompt, mean scores."""
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (f"{domain}: {variant}", *(float(value) for value in found.maximum_A))
        for domain, its in results.items()
        for variant, found in its.items()
    )
    caption = "Mean over prompts of the highest score among a prompt's continuations (here one)."
    return Table("Expected maximum score", ("", *titles(attributes)), rows, caption)


def groups_table(results: Results) -> Table:
    """Average rate of each group of nonsense."""
    rows = []
    for domain, its in results.items():
        percents = [100 * value for value in its["nonsense"].groups]
        spread = float(np.std(percents, ddof=1)) if len(percents) > 1 else math.nan
        cells = (f"{value:.2f}" for value in (float(np.mean(percents)), spread, *percents))
        rows.append((domain, *cells))
    header = ("", "mean", "sd", *(f"group {g}" for g in range(len(results["neutral"]["nonsense"].groups))))
    return Table("Groups of nonsense: average rates in percent", header, tuple(rows))
