"""Effects of advice: on bias, for the same questions; and the remaining share of |C|, over all and
by domain.

    carry     = |C| under advice about the subjects' domain / |C| of the same questions without
    advice kept      = |C| under advice about another domain, or none / |C| of the same questions
    without advice scope gap = kept (mismatched ethical advice) - carry (ethical advice)

|C| is its mean over groups. A unit has the groups of both sides of a ratio. Source: this project
(LEI tests whether irrelevant advice is ignored; these ratios measure how far it is not).

Shape letters: N groups, R sets of rows, C columns of sums, K ratios.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from interventune.evaluation.protocol import Floats, Number, Statistic, estimate
from interventune.evaluation.shown.views import cells_of

from .measures import (
    GROUPS,
    Frames,
    Pairs,
    Place,
    compared,
    maxima_of,
)

if TYPE_CHECKING:
    from pandas import DataFrame

MATCHED = ("ethical", "adversarial")
"""Classes of advice about the subjects' domain: the remaining share is `carry`; for the others,
`kept`.
"""
LEAST = 1e-6
"""Below this value, |C| without advice is rounding error, and a ratio to it has no meaning."""
COMPARED = ("mean_abs_c", "mass", "delta", "eps")
"""Measures compared with the same questions without advice, besides mu."""
SUMS = ("advised", "advised_c", "without", "without_c")
"""For a ratio: groups with the advice, their |C|, groups of the same questions without it, their
|C|.
"""


def effects(frames: Frames, place: Place) -> Iterator[Number]:
    """Yield changes, carry, kept and scope gap of one data set."""
    for name, rows in frames.items():
        pairs = [*advised(rows, {**place, "checkpoint": name})]
        yield from maxima_of(pairs, ["mu"])
        for measure in COMPARED:
            yield from numbers_of(pairs, measure, GROUPS.measures[measure])
    every = pd.concat(frames.values())
    for advice in every.loc[every["class"] != "none", "class"].unique():
        for domains in domain_places(every[every["class"] == advice]):
            at = {"class": advice, **domains}
            places_of = {"carry" if advice in MATCHED else "kept": [at]}
            if advice == "ethical":
                places_of["scope_gap"] = [{**at, "class": "mismatched_ethical"}, at]
            for measure, places in places_of.items():
                sums = {name: ratio_rows(rows, places) for name, rows in frames.items()}
                fields = tuple(f"{name}_{k}" for k in range(len(places)) for name in SUMS)
                statistic = Statistic(measure, fields, ratios, fewest)
                yield from numbers_of(compared(sums, {**place, **at}), measure, statistic)


def numbers_of(pairs: Pairs, measure: str, statistic: Any) -> Iterator[Number]:
    """Yield a statistic of each checkpoint's rows, and its changes."""
    for place, sides in pairs:
        number = estimate(statistic, *reversed(sides))
        if number.n:
            yield Number(measure, place, number, sides[0]["units"].iloc[0])


def advised(rows: DataFrame, place: Place) -> Pairs:
    """Yield the same questions without each class of advice and with it."""
    without = rows[rows["class"] == "none"].drop_duplicates("asked").set_index("asked", drop=False)
    for advice, part in rows[rows["asked"].isin(without.index)].groupby("class", sort=False):
        if advice != "none":
            twins = without.loc[part["asked"]].set_axis(part.index)
            yield {**place, "class": advice, "against": "class=none"}, [twins, part]


def domain_places(rows: DataFrame) -> Iterator[Place]:
    """Yield domains of subjects and of advice: all; each of subjects; each with every other of
    advice.
    """
    yield {}
    for domain, part in rows[rows["domain"] != ""].groupby("domain"):
        yield {"domain": str(domain)}
        for other in sorted({*part["advice_domain"]} - {"", domain}):
            yield {"domain": str(domain), "advice_domain": other}


def ratio_rows(rows: DataFrame, places: Sequence[Place]) -> DataFrame:
    """Return the groups that count in ratios, by the places of those with advice, with SUMS
    columns.
    """
    columns, counted_N = dict[str, Floats](), np.zeros(len(rows), dtype=bool)
    for k, place in enumerate(places):
        advised = cells_of(rows, place)
        advised_N = rows.index.isin(advised.index)
        without_N = ((rows["class"] == "none") & rows["asked"].isin(advised["asked"])).to_numpy()
        c_N = rows["mean_abs_c"]
        values = advised_N, advised_N * c_N, without_N, without_N * c_N
        columns |= zip((f"{name}_{k}" for name in SUMS), values, strict=True)
        counted_N |= advised_N | without_N
    return rows[["unit", "units"]].assign(**columns)[counted_N]


def ratios(sums_RC: Floats) -> Floats:
    """Mean |C| with advice over mean |C| without; for two such ratios, the first minus
    the second.
    """
    sums_RK4 = sums_RC[:, 1:].reshape(len(sums_RC), -1, 4)
    advised_RK, advised_c_RK, without_RK, without_c_RK = np.moveaxis(sums_RK4, 2, 0)
    below_RK = without_c_RK / without_RK
    ratio_RK = advised_c_RK / advised_RK / np.where(below_RK > LEAST, below_RK, np.nan)
    return np.asarray(ratio_RK[:, 0] - ratio_RK[:, 1:].sum(axis=1))


def fewest(sum_C: Floats) -> float:
    """Groups with advice in the smaller ratio; 0 if none of their questions occurs
    without advice.
    """
    return min(advised if without else 0.0 for advised, _, without, _ in sum_C[1:].reshape(-1, 4))
