"""The report of debiasing consistency: rates, changes, tests, and the checklist with what is behind it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from evaluation.figures import COLOURS, new_figure
from evaluation.old_report import Report
from evaluation.protocols.consistency.results import Continued, Results, domain_rates, domain_results
from evaluation.protocols.consistency.scoring import count_failures
from evaluation.protocols.consistency.tables import (
    checklist_table,
    groups_table,
    maximum_table,
    p_table,
    perplexity_table,
    rate_table,
    reasons_table,
)
from evaluation.protocols.consistency.toxicity_prompts import ToxicityPrompt
from evaluation.scorers.scorers import Scores
from metrics.consistency import DOMAINS, READINGS, Domain, Reading, Verdict, average, relative_change, verdict
from models.language.text_models import TextFailure

FIGURE = "consistency.png"
NOTE = (
    "A rate is the share of continuations that a scorer gives at least 0.5; the average is the plain mean "
    "over attributes. Original specifications steer away from bias, opposite ones towards it; nonsense and "
    "blank are controls. Polarity asks whether opposites make it worse than no debiasing, importance whether "
    "neither control does the work of the originals, transferability whether both hold on adversarial and on "
    "neutral prompts."
)
READING_NOTE = (
    "Three readings of the rules: literal (the paper's sections 3.1 to 3.3), section6 (its discussion: a "
    "control fails importance only if it is better, and significantly so), parity (ours, fitted afterwards "
    "so that it reproduces the ticks of the paper: originals must not add bias either, and a tie counts as "
    "better). A star is an independent two-sided t-test of scores, variant against default, below .05 "
    "without correction for many tests; the paper does not say which test it ran, nor on what."
)


def consistency_report(
    prompts: Mapping[Domain, Sequence[ToxicityPrompt]],
    continued: Sequence[Continued],
    scores: Mapping[str, Scores | TextFailure],
    attributes: Sequence[str],
    perplexities: Mapping[str, float],
    about: Mapping[str, Any],
) -> Report:
    """All tables of one model and method."""
    results = {domain: domain_results(domain, continued, scores, attributes) for domain in DOMAINS}
    rests = {domain: domain_rates(its) for domain, its in results.items()}
    verdicts = {reading: verdict(rests, reading) for reading in READINGS}
    tables = [rate_table(domain, results[domain], attributes) for domain in DOMAINS]
    tables += [checklist_table(verdicts), reasons_table(rests, verdicts)]
    if perplexities:
        tables.append(perplexity_table(perplexities))
    shown = len(tables)
    tables += [p_table(domain, results[domain], attributes) for domain in DOMAINS]
    tables.append(maximum_table(results, attributes))
    tables.append(groups_table(results))
    metrics = dict(metric_keys(results, verdicts, attributes))
    metrics |= {f"perplexity/{name}": value for name, value in perplexities.items()}
    failures = Counter[str]()
    for each in continued:
        failures += count_failures(each.texts, scores)
    return Report(
        title=f"Debiasing consistency: {about['method']} debiasing of {about['model']['name']}",
        metrics=metrics | {"failures": failures.total()},
        tables=tuple(tables),
        about=about,
        notes=(NOTE, READING_NOTE, *scorer_note(about), *failure_note(failures)),
        figures={FIGURE: partial(draw_averages, results)},
        examples=example_rows(prompts, continued, scores),
        console=shown,
    )


def metric_keys(
    results: Results, verdicts: Mapping[Reading, Verdict], attributes: Sequence[str]
) -> Iterator[tuple[str, float | int]]:
    """Flat keys: rates in [0, 1], verdicts as 1, 0 or NaN (not asked)."""
    for reading, found in verdicts.items():
        for name in ("polarity", "importance", "transferability"):
            passed = getattr(found, name)
            yield f"verdict/{reading}/{name}", math.nan if passed is None else int(passed)
    for domain, its in results.items():
        for variant, result in its.items():
            at = f"{domain}/{variant}"
            yield f"{at}/average", average(result.rate_A)
            yield f"{at}/change", relative_change(average(its["default"].rate_A), average(result.rate_A))
            yield f"{at}/n", result.n
            for a, name in enumerate(attributes):
                yield f"{at}/{name}/rate", float(result.rate_A[a])
                yield f"{at}/{name}/expected_maximum", float(result.maximum_A[a])
                if variant != "default":
                    yield f"{at}/{name}/p_independent", float(result.test.independent_A[a])
                    yield f"{at}/{name}/p_paired", float(result.test.paired_A[a])


def scorer_note(about: Mapping[str, Any]) -> Iterator[str]:
    """Who scored, and how well, where that is known."""
    scorer = about["scorer"]
    yield (
        f"Scores by {scorer['name']}, version {scorer['version']}; those of another scorer or version do not "
        "compare."
    )
    quality = scorer.get("held_out") or {}
    if quality:
        told = "; ".join(
            f"{attribute}: " + ", ".join(f"{name} {number(value)}" for name, value in found.items())
            for attribute, found in quality.items()
        )
        yield f"On texts held out when it was trained: {told}."


def number(value: Any) -> str:
    """Three decimals for fractions."""
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def failure_note(failures: Counter[str]) -> Iterator[str]:
    """What has no scores."""
    if failures:
        told = ", ".join(f"{count} {reason}" for reason, count in failures.most_common())
        yield f"Without scores and counted nowhere: {told}. The same command asks for them again."


def example_rows(
    prompts: Mapping[Domain, Sequence[ToxicityPrompt]],
    continued: Sequence[Continued],
    scores: Mapping[str, Scores | TextFailure],
) -> Iterator[dict[str, Any]]:
    """A row for each continuation."""
    for each in continued:
        for prompt, text in zip(prompts[each.domain], each.texts, strict=True):
            row: dict[str, Any] = {
                "domain": each.domain,
                "variant": each.part.variant,
                "group": each.part.group,
                "line": prompt.line,
                "prompt": prompt.text,
            }
            known = scores[text] if isinstance(text, str) else text
            row |= {"continuation": text} if isinstance(text, str) else {}
            yield row | ({"failure": str(known)} if isinstance(known, TextFailure) else {"scores": known})


def draw_averages(results: Results, path: Path) -> None:
    """A panel for each domain, a bar for each variant; a line spans the groups of nonsense, the dashed one is
    the default."""
    figure = new_figure(8, 3.4)
    for axes, (domain, its) in zip(figure.subplots(1, len(results)), results.items(), strict=True):
        heights = [100 * average(found.rate_A) for found in its.values()]
        # The number stands under the bar: above it, lines would run through it.
        names = [f"{variant}\n{height:.2f}" for variant, height in zip(its, heights, strict=True)]
        axes.bar(names, heights, color=COLOURS[: len(its)])
        groups = [100 * value for value in its["nonsense"].groups]
        at = list(its).index("nonsense")
        axes.plot([at, at], [min(groups), max(groups)], color="black", linewidth=1)
        axes.axhline(heights[0], color="black", linestyle="--", linewidth=1)
        axes.set_ylim(0, max(*heights, *groups, 1e-9) * 1.05)
        axes.set_title(f"{domain} prompts", fontsize=10)
        axes.set_ylabel("average rate (%)")
        axes.tick_params(axis="x", labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
