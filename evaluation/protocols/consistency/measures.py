"""The numbers of debiasing consistency: every system judged by every scorer from every threshold on.

A system is a model with a method of debiasing (and its strength). Shape letters: G groups of nonsense,
N prompts, C continuations of a prompt, A attributes, R resamples, M continuations of all prompts.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from evaluation.conclusions import listed
from evaluation.protocols.consistency.continuation_rows import SYSTEM
from evaluation.results import Results, Row, grouped
from metrics.consistency import (
    CONTROLS,
    DOMAINS,
    VARIANTS,
    Array,
    Decision,
    Domain,
    DomainRates,
    Evidence,
    Gaps,
    Variant,
    agreement,
    average,
    decide,
    differences,
    expected_maximum,
    rates,
    relative_change,
    t_tests,
    transferability,
    verdict,
)
from metrics.intervals import NONE, Interval, percentiles, resamples
from models.language.text_models import TextFailure

log = logging.getLogger(__name__)

JUDGE = ("scorer", "threshold")
"""Who judges, and from which score on; empty where a report has one."""
BY = (*SYSTEM, *JUDGE, "domain", "variant", "group", "attribute", "reading")
TESTS = ("polarity", "importance", "transferability")
"""Of the whole checklist; the first two are those on adversarial prompts."""
CHECKS = (*TESTS, "neutral: polarity", "neutral: importance")
"""The columns of the checklist."""

EveryReading = Literal["evidence", "literal", "section6", "parity"]
"""Ours by intervals, and the paper's."""
EVERY_READING: tuple[EveryReading, ...] = get_args(EveryReading)

CLAIMS: dict[str, tuple[tuple[Variant, Variant], ...]] = {
    "effect": (("original", "default"),),
    "polarity": (("opposite", "default"),),
    "importance": tuple((control, "original") for control in CONTROLS),
}
"""The differences that decide each test of the reading `evidence`."""


class Judged(NamedTuple):
    """What one scorer, at one threshold, makes of one system."""

    place: Row
    """Its cell: SYSTEM and JUDGE."""
    rates: Mapping[Domain, DomainRates]
    gaps: Mapping[Domain, Gaps]
    evidence: Mapping[Domain, Evidence]

    def checks(self, reading: EveryReading = "evidence") -> dict[str, Decision]:
        """What a reading says of each of CHECKS."""
        if reading == "evidence":
            first, second = (self.evidence[domain] for domain in DOMAINS)
            transfers = transferability(self.evidence)
            said = (first.polarity, first.importance, transfers, second.polarity, second.importance)
            return dict(zip(CHECKS, said, strict=True))
        read = verdict(self.rates, reading)
        words: dict[bool | None, Decision] = {True: "pass", False: "fail", None: "not asked"}
        passed = (read.polarity, read.importance, read.transferability, *read.domains["neutral"])
        return {check: words[each] for check, each in zip(CHECKS, passed, strict=True)}


def long_table(
    rows: Sequence[Row],
    scorers: Sequence[str],
    attributes: Sequence[str],
    thresholds: Sequence[float],
    margin: float,
) -> tuple[Results, list[Judged], Counter[str]]:
    """All numbers, what each judge makes of each system, and why continuations have no scores.

    Args:
        rows: of each continuation its place, and `judged`, by scorer its scores or a TextFailure, or the
            TextFailure `failure`. `line`, or else the prompt, tells which continuations belong together.
        scorers: names of who judged.
        attributes: that all of them score, in the order of tables.
        thresholds: from which score on a continuation counts.
        margin: the smallest difference of rates that matters.

    Raises:
        ValueError: a part has no scores.
    """
    results, judged, failures = Results(BY, "prompts"), list[Judged](), Counter[str]()
    for system, members in grouped(rows, SYSTEM):
        arrays = []
        for name in scorers:
            at = system | ({"scorer": name} if len(scorers) > 1 else {})
            missing = check_scores(members, name, at)
            failures += missing
            results.add("failed", missing.total() / len(members), n=len(members), **at)
            scores = {domain: score_arrays(members, domain, name, attributes) for domain in DOMAINS}
            starred = {
                domain: add_scores(results, score, attributes, {**at, "domain": domain})
                for domain, score in scores.items()
            }
            for threshold in thresholds:
                place = at | ({"threshold": threshold} if len(thresholds) > 1 else {})
                judged.append(add_judgement(results, scores, starred, attributes, place, threshold, margin))
            arrays.append(scores)
        for name, other in zip(scorers[1:], arrays[1:], strict=True):
            for domain in DOMAINS:
                pair = arrays[0][domain], other[domain]
                at = {**system, "scorer": name, "domain": domain}
                add_agreement(results, pair, attributes, at, thresholds[0])
    return results, judged, failures


def check_scores(rows: Sequence[Row], scorer: str, place: Row) -> Counter[str]:
    """Reasons why continuations have no scores, with a warning; ValueError where a part has none at all."""
    failures: Counter[str] = Counter()
    for cell, members in grouped(rows, ("domain", "variant", "group")):
        missing = Counter(
            failed.reason for row in members if isinstance(failed := outcome(row, scorer), TextFailure)
        )
        where = f"{cell['domain']} prompts, {cell['variant']}"
        if missing.total() == len(members):
            raise ValueError(
                f"no scores at all of {where} ({listed(missing)}); nothing is compared. The same command "
                "goes on from what is finished"
            )
        if missing:
            name = " ".join(str(part) for part in place.values() if part != "")
            log.warning("%s, %s: %s; not counted", name, where, listed(missing))
        failures += missing
    return failures


def outcome(row: Row, scorer: str) -> Any:
    """What a scorer gave a continuation: by attribute, or why it gave nothing."""
    return row["failure"] if "failure" in row else row["judged"][scorer]


def score_arrays(
    rows: Sequence[Row], domain: Domain, scorer: str, attributes: Sequence[str]
) -> dict[Variant, Array]:
    """By variant the scores (G, N, C, A) of a domain's prompts, in one order; NaN where there is none."""
    rows = [row for row in rows if row["domain"] == domain]
    prompt = ("line", "prompt")
    number_of = {tuple(cell.values()): n for n, (cell, _) in enumerate(grouped(rows, prompt))}
    found: dict[Variant, Array] = {}
    for variant in VARIANTS:
        groups = list(grouped((row for row in rows if row["variant"] == variant), ("group",)))
        placed = [
            (g, number_of[tuple(cell.values())], c, row)
            for g, (_, members) in enumerate(groups)
            for cell, several in grouped(members, prompt)
            for c, row in enumerate(several)
        ]
        most = 1 + max(c for _, _, c, _ in placed)
        found[variant] = np.full((len(groups), len(number_of), most, len(attributes)), math.nan)
        for g, n, c, row in placed:
            if not isinstance(scores := outcome(row, scorer), TextFailure):
                found[variant][g, n, c] = [scores[name] for name in attributes]
    return found


def add_scores(
    results: Results, score: Mapping[Variant, Array], attributes: Sequence[str], place: Row
) -> dict[Variant, bool]:
    """Expected maxima and tests of scores, which no threshold moves; returns for each variant whether any
    attribute differs from the default.

    A prompt's score is the mean over its continuations and groups; of groups the maxima are averaged.
    """
    default_NA, starred = mean_score(score["default"]), dict[Variant, bool]()
    for variant, score_GNCA in score.items():
        tested = t_tests(mean_score(score_GNCA), default_NA)
        starred[variant] = bool(tested.starred.any())
        maximum_A = np.stack([expected_maximum(score_NCA) for score_NCA in score_GNCA]).mean(0)
        n = int((~np.isnan(score_GNCA[..., 0])).sum())
        for a, name in enumerate(attributes):
            at = {**place, "variant": variant, "attribute": name}
            results.add("expected_maximum", maximum_A[a], n=n, **at)
            if variant != "default":
                results.add("p_independent", tested.independent_A[a], n=n, **at)
                results.add("p_paired", tested.paired_A[a], n=n, **at)
    return starred


def add_judgement(
    results: Results,
    scores: Mapping[Domain, Mapping[Variant, Array]],
    starred: Mapping[Domain, Mapping[Variant, bool]],
    attributes: Sequence[str],
    place: Row,
    threshold: float,
    margin: float,
) -> Judged:
    """Rates, differences and verdicts of one system, by one scorer, at one threshold."""
    found: dict[Domain, DomainRates] = {}
    gaps: dict[Domain, Gaps] = {}
    for domain, score in scores.items():
        at = {**place, "domain": domain}
        found[domain] = add_rates(results, score, starred[domain], attributes, at, threshold)
        gaps[domain] = differences({variant: shares(each, threshold) for variant, each in score.items()})
        for (variant, against), gap in gaps[domain].items():
            results.add(f"minus_{against}", gap.value, n=gap.n, interval=gap.interval, **at, variant=variant)
    evidence = {domain: decide(found[domain].average["default"], gaps[domain], margin) for domain in DOMAINS}
    judged = Judged(place, found, gaps, evidence)
    as_number = {"pass": 1.0, "fail": 0.0}
    for domain in DOMAINS:
        for test, pairs in CLAIMS.items():
            value = as_number.get(getattr(evidence[domain], test), math.nan)
            n = min(gaps[domain][pair].n for pair in pairs)
            results.add(test, value, n=n, **place, domain=domain, reading="evidence")
    prompts = sum(score["default"].shape[1] for score in scores.values())
    for reading in EVERY_READING:
        checks = judged.checks(reading)
        for test in TESTS:
            value = as_number.get(checks[test], math.nan)
            results.add(test, value, n=prompts, **place, reading=reading)
    return judged


def add_rates(
    results: Results,
    score: Mapping[Variant, Array],
    starred: Mapping[Variant, bool],
    attributes: Sequence[str],
    place: Row,
    threshold: float,
) -> DomainRates:
    """Rates and changes of a domain; returns what the paper's verdicts rest on. Of groups of nonsense the
    rates are averaged."""
    averages: dict[Variant, float] = {}
    for variant, score_GNCA in score.items():  # the default, with which the others are compared, comes first
        cell: dict[str, Any] = {**place, "variant": variant}
        rate_GA = np.stack([rates(score_NCA, threshold) for score_NCA in score_GNCA])
        rate_A, count_G = rate_GA.mean(0), (~np.isnan(score_GNCA[..., 0])).sum((1, 2))
        averages[variant] = average(rate_A)
        interval_A, overall = rate_intervals(score_GNCA, threshold)
        n = int(count_G.sum())
        results.add("average", averages[variant], n=n, interval=overall, **cell)
        # `change` of the metrics is positive where there is less.
        change = relative_change(averages["default"], averages[variant])
        results.add("change", -change + 0.0, n=n, **cell)
        if len(rate_GA) > 1:
            for group, (group_A, count) in enumerate(zip(rate_GA, count_G, strict=True)):
                results.add("average", average(group_A), n=count, **cell, group=group)
        for a, name in enumerate(attributes):
            results.add("rate", rate_A[a], n=n, interval=interval_A[a], **cell, attribute=name)
    return DomainRates(averages, starred)


def mean_score(score_GNCA: Array) -> Array:
    """Mean over groups and continuations of each prompt's scores, (N, A), over those that there are."""
    groups, prompts, several, attributes = score_GNCA.shape
    score_GNA = score_GNCA.transpose(0, 2, 1, 3).reshape(groups * several, prompts, attributes)
    count_NA = (~np.isnan(score_GNA)).sum(0)
    least_NA = np.fmin.reduce(score_GNA)
    with np.errstate(invalid="ignore"):
        # From the least on: the mean of equal scores is that score to the bit, no difference to be tested.
        mean_NA: Array = least_NA + np.nansum(score_GNA - least_NA, axis=0) / count_NA
    return mean_NA


def counts(score_GNCA: Array, threshold: float) -> tuple[Array, Array]:
    """How many continuations of each prompt are flagged, and how many have scores: (G, N, A) each."""
    known_GNCA = ~np.isnan(score_GNCA)
    flagged_GNCA = np.where(known_GNCA, score_GNCA >= threshold, False)
    return flagged_GNCA.sum(2).astype(float), known_GNCA.sum(2).astype(float)


def shares(score_GNCA: Array, threshold: float) -> Array:
    """Each prompt's share of flagged continuations, mean over attributes, (N,); NaN where it has none."""
    flagged_GNA, known_GNA = counts(score_GNCA, threshold)
    with np.errstate(invalid="ignore"):
        share_N: Array = (flagged_GNA.sum(0) / known_GNA.sum(0)).mean(1)
    return share_N


def rate_intervals(score_GNCA: Array, threshold: float) -> tuple[list[Interval], Interval]:
    """Intervals over prompts of the rate of each attribute, and of their average. All groups of a prompt are
    drawn together."""
    flagged_GNA, known_GNA = counts(score_GNCA, threshold)
    _, prompts, attributes = flagged_GNA.shape
    if prompts < 2:
        return [NONE] * attributes, NONE
    blocks = []
    for weight_RN in resamples(prompts):
        flagged_RGA = np.einsum("rn,gna->rga", weight_RN, flagged_GNA)
        with np.errstate(invalid="ignore"):
            blocks.append((flagged_RGA / np.einsum("rn,gna->rga", weight_RN, known_GNA)).mean(1))
    rate_RA = np.concatenate(blocks)
    return [percentiles(rate_R) for rate_R in rate_RA.T], percentiles(rate_RA.mean(1))


def add_agreement(
    results: Results,
    pair: tuple[Mapping[Variant, Array], Mapping[Variant, Array]],
    attributes: Sequence[str],
    place: Row,
    threshold: float,
) -> None:
    """How far a scorer agrees with the first, over the continuations of all variants that both scored."""
    one_NMA, other_NMA = (
        np.concatenate(
            [
                array.transpose(1, 0, 2, 3).reshape(array.shape[1], -1, array.shape[3])
                for array in score.values()
            ],
            axis=1,
        )
        for score in pair
    )
    for a, name in enumerate(attributes):
        found = agreement(one_NMA[..., a], other_NMA[..., a], threshold)
        for measure, (value, interval, n) in found._asdict().items():
            results.add(measure, value, n=n, interval=interval, **place, attribute=name)
