"""The report of debiasing consistency: rates, and numbers that are not means of rows, which are
relative changes, tests, differences between specifications, and verdicts.

A system is a model with a method of debiasing.
"""

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import pandas as pd

from interventune.evaluation.protocol import (
    Estimate,
    Number,
    Protocol,
    Results,
    Row,
    View,
    declared,
    estimate,
    plain,
    share,
)
from interventune.metrics.consistency import (
    ALPHA,
    COMPARED,
    DOMAINS,
    READINGS,
    THRESHOLD,
    VARIANTS,
    Domain,
    DomainRates,
    Evidence,
    Variant,
    Verdict,
    decide,
    relative_change,
    t_tests,
    verdict,
)

EVIDENCE = "evidence"
"""This project's reading: differences with their intervals against a margin."""
RATE = share("average rate", "average")
CELL = ("method", "domain", "variant")


def judging(attributes: Sequence[str], rows: Sequence[Row], margin: float) -> Protocol:
    """Return the protocol. Its figure compares checkpoints with one method, else the methods of the
    first checkpoint.

    Args:
        attributes: those that all scores have, in the order of tables.
        rows: those with scores.
        margin: the smallest difference of rates that matters, in percentage points.
    """
    headings = {name: name.replace("_", " ") for name in attributes}
    scorers = {row.get("scored_by", "the source of the rows") for row in rows}
    shown = declared(__file__)
    shown["notes"].append(f"Scores by {', '.join(sorted(scorers))}.")
    by_attribute = ("checkpoint", *CELL)
    shown["views"].append(
        View("Rates by attribute", by_attribute, headings, across="measure", interval=False)
    )
    if len({row["method"] for row in rows}) > 1:
        first = rows[0]["checkpoint"]
        points = shown["figures"]["consistency.png"]
        shown["figures"]["consistency.png"] = replace(
            points, hue="method", where={"checkpoint": first}
        )
    return Protocol(
        measures={"average": "average rate", **headings, "repetition": "words repeated"},
        also=[partial(verdicts, attributes=attributes, margin=margin / 100)],
        remarks=[partial(verdict_sentence, margin=margin)],
        **shown,
    )


def flags(scores: Mapping[str, float], attributes: Sequence[str]) -> dict[str, float | bool]:
    """Return whether a continuation is flagged, by attribute, and the mean over attributes.

    >>> flags({"toxicity": 0.5, "threat": 0.1}, ["toxicity", "threat"])
    {'toxicity': True, 'threat': False, 'average': 0.5}
    """
    flagged = {name: scores[name] >= THRESHOLD for name in attributes}
    return {**flagged, "average": sum(flagged.values()) / len(attributes)}


def verdicts(
    rows: pd.DataFrame, _: Sequence[str], attributes: Sequence[str], margin: float
) -> Iterator[Number]:
    """Yield comparisons of the rates of each system, and verdicts."""
    scored = rows.dropna(subset="scores").to_dict("records")
    frame = pd.DataFrame([{**row, **row["scores"]} for row in scored])
    for (checkpoint, method), system in frame.groupby(["checkpoint", "method"], sort=False):
        place = {"checkpoint": checkpoint, "method": method}
        rates: dict[Domain, DomainRates] = {}
        for domain in DOMAINS:
            part = system[system["domain"] == domain]
            at = {**place, "domain": domain}
            rates[domain] = yield from of_domain(part, list(attributes), margin, at)
        prompts = len(system[["domain", "prompt"]].drop_duplicates())
        for reading in READINGS:
            yield from of_tests(verdict(rates, reading), prompts, {**place, "reading": reading})


def of_domain(
    rows: pd.DataFrame, attributes: list[str], margin: float, place: Row
) -> Generator[Number, None, DomainRates]:
    """Yield comparisons and verdicts of one domain of a system; return the input of the paper's
    readings.

    A prompt's share of flagged continuations is a mean over groups of nonsense. Tests compare the
    scores of one group, as means of several would vary less than the default's.
    """
    rate = rows.groupby("variant")["average"].mean()
    by_prompt = rows.groupby(["prompt", "variant"])
    score = by_prompt[attributes].first()
    starred = dict.fromkeys(VARIANTS, False)
    for variant in VARIANTS[1:]:
        cell = {**place, "variant": variant, "n": int((rows["variant"] == variant).sum())}
        yield plain("change", relative_change(rate["default"], rate[variant]), **cell)
        sides = (score.xs(name, level="variant").to_numpy() for name in (variant, "default"))
        p_A = t_tests(*sides)
        starred[variant] = bool((p_A < ALPHA).any())
        for name, p in zip(attributes, p_A, strict=True):
            yield plain(f"p_{name}", p, **cell)
    shares = by_prompt["average"].mean().reset_index("variant")
    side_of = dict(iter(shares.assign(unit=shares.index).groupby("variant")))
    gaps: dict[tuple[Variant, Variant], Estimate] = {}
    for variant, against in COMPARED:
        gap = gaps[variant, against] = estimate(RATE, side_of[variant], side_of[against])
        at = {**place, "variant": variant, "against": f"variant={against}"}
        yield Number("average", at, gap)
    n = min(gap.n for gap in gaps.values())
    interval_of = {pair: (gap.low, gap.high) for pair, gap in gaps.items()}
    evidence = decide(rate["default"], interval_of, margin)
    yield from of_tests(evidence, n, {**place, "reading": EVIDENCE})
    return DomainRates(rate.to_dict(), starred)


def of_tests(tests: Verdict | Evidence, n: int, place: Row) -> Iterator[Number]:
    """Yield 1 for a passed test, 0 for a failed one, NaN for one without a result."""
    for test, passed in tests._asdict().items():
        yield plain(test, math.nan if passed is None else float(passed), n, **place)


def verdict_sentence(results: Results, _: Sequence[str], margin: float) -> str:
    """Summarise the evidence on each system for adversarial prompts."""
    frame = results.frame
    evidence = frame[(frame["reading"] == EVIDENCE) & (frame["domain"] == DOMAINS[0])]
    parts = []
    for system, tests in evidence.groupby(["checkpoint", "method"], sort=False):
        verdicts = tests["value"].map({0.0: "fail", 1.0: "pass"}).fillna("not decidable")
        parts.append(f"{' '.join(system)}: {', '.join(tests['measure'] + ' ' + verdicts)}")
    return f"Tests on {DOMAINS[0]} prompts, with a margin of {margin:g} points: {'; '.join(parts)}."
