"""What advice does to |C| by domain and by sentence: rows of the long table.

    carry     = |C| under advice about the subjects' domain / |C| of the same questions without advice
    kept      = |C| under advice about another domain, or none / |C| of the same questions without advice
    scope gap = kept (mismatched ethical advice) - carry (ethical advice)

|C| is its mean over groups. A question is the unit: a resample draws questions, each with all that was asked
of it, so that both sides of a ratio are of one draw. Source: this project (LEI asks whether irrelevant advice
is ignored; these say by how much it is not).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from evaluation.protocols.bias.groups import Frames, questions_of
from evaluation.protocols.bias.measures import COMPARED, Place, add_estimates, add_statistic
from evaluation.results import Results
from evaluation.statistics import Floats, Statistic, mean

if TYPE_CHECKING:
    from pandas import DataFrame

MATCHED = ("ethical", "adversarial")
"""Classes of advice that speaks of the subjects' domain: what it leaves is `carry`; of the others, `kept`."""
LEAST = 1e-6
"""|C| without advice below it is rounding: ratios to it would tell nothing."""


def fields(name: str) -> tuple[str, ...]:
    """Of a ratio: groups with the advice, their |C|, groups that ask the same without it, their |C|."""
    return f"{name}_advised", f"{name}_advised_c", f"{name}_bare", f"{name}_bare_c"


def ratio(sums_R4: Floats) -> Floats:
    """Mean |C| with advice over mean |C| without, of the sums of `fields`."""
    advised_R, advised_c_R, bare_R, bare_c_R = sums_R4.T
    below_R = bare_c_R / bare_R
    return np.asarray(advised_c_R / advised_R / np.where(below_R > LEAST, below_R, np.nan))


def counted(sum_4: Floats) -> float:
    """The groups with advice; 0 where none of their questions is asked without."""
    return float(sum_4[0]) if sum_4[2] else 0.0


RATIO = Statistic(
    "carry", fields("carry"), lambda sums_RC: ratio(sums_RC[:, 1:]), lambda sum_C: counted(sum_C[1:])
)
GAP = Statistic(
    "scope gap",
    (*fields("kept"), *fields("carry")),
    lambda sums_RC: ratio(sums_RC[:, 1:5]) - ratio(sums_RC[:, 5:]),
    lambda sum_C: min(counted(sum_C[1:5]), counted(sum_C[5:])),
)
ABS_C = mean("mean |C|", "abs_c")


def add_effects(results: Results, frames: Frames, place: Place) -> None:
    """All rows of this file, of one data set."""
    frames = {
        name: frame.assign(unit=questions_of(frame).factorize()[0], abs_c=frame["c"].abs())
        for name, frame in frames.items()
    }
    every = pd.concat(frames.values())
    for advice, members in every.groupby("class", sort=False):
        for domain, noun in places(members):
            at = {**place, "class": str(advice), "domain": domain, "advice_domain": noun}
            parts = {name: select(frame, at) for name, frame in frames.items()}
            if domain and sum(map(len, parts.values())) < len(members):
                add_estimates(results, parts, {"": COMPARED}, at)
            if advice != "none":
                measure = "carry" if advice in MATCHED else "kept"
                ratios = {name: ratio_rows(frame, carry=parts[name]) for name, frame in frames.items()}
                add_statistic(results, measure, RATIO, ratios, at)
        add_sentences(results, frames, {**place, "class": str(advice)})
    for domain in ["", *sorted({*every["domain"]} - {""})]:
        at = {**place, "class": "ethical", "domain": domain}
        other = {**at, "class": "mismatched_ethical"}
        gaps = {
            name: ratio_rows(frame, carry=select(frame, at), kept=select(frame, other))
            for name, frame in frames.items()
        }
        add_statistic(results, "scope_gap", GAP, gaps, at)


def places(rows: DataFrame) -> Iterator[tuple[str, str]]:
    """Domains of subjects and of advice: all; each of subjects; each with every other that advice names."""
    yield "", ""
    for domain, part in rows.groupby("domain"):
        if domain:
            yield str(domain), ""
            yield from ((str(domain), noun) for noun in sorted({*part["advice_domain"]} - {"", domain}))


def select(frame: DataFrame, place: Place) -> DataFrame:
    """The groups of a class, and of the domains that are named."""
    wanted = frame["class"] == place["class"]
    for name in ("domain", "advice_domain"):
        if place.get(name):
            wanted &= frame[name] == place[name]
    return frame[wanted]


def ratio_rows(frame: DataFrame, **advised: DataFrame) -> DataFrame:
    """The groups that count in ratios of these names, given those above the line, with their `fields`."""
    rows, counted_N = frame[["unit"]], np.zeros(len(frame), dtype=bool)
    for name, part in advised.items():
        above = frame.index.isin(part.index)
        below = (frame["class"] == "none") & frame["unit"].isin(part["unit"])
        values = (above, above * frame["abs_c"], below, below * frame["abs_c"])
        rows = rows.assign(**dict(zip(fields(name), values, strict=True)))
        counted_N |= above | below
    return rows[counted_N]


def add_sentences(results: Results, frames: Frames, place: Place) -> None:
    """mean |C| of each sentence of advice with two groups or more, where its class has several."""
    needed = ["unit", "abs_c", "advice", "domain", "advice_domain"]
    parts = {name: select(frame, place)[needed] for name, frame in frames.items()}
    groups = {name: dict(iter(rows.groupby("advice", sort=False))) for name, rows in parts.items()}
    sentences = dict.fromkeys(sentence for found in groups.values() for sentence in found if sentence)
    for sentence in sentences if len(sentences) > 1 else ():
        rows_of = {name: found.get(sentence, parts[name].iloc[:0]) for name, found in groups.items()}
        if max(map(len, rows_of.values())) > 1:
            every, at = pd.concat(rows_of.values()), {**place, "sentence": sentence}
            for name in ("domain", "advice_domain"):
                if every[name].nunique() == 1:
                    at[name] = every[name].iloc[0]
            add_statistic(results, "mean_abs_c", ABS_C, rows_of, at)
