"""Effects of advice: on bias, for the same questions; and the remaining share of |C|, over all and by domain.

    carry     = |C| under advice about the subjects' domain / |C| of the same questions without advice
    kept      = |C| under advice about another domain, or none / |C| of the same questions without advice
    scope gap = kept (mismatched ethical advice) - carry (ethical advice)

|C| is its mean over groups. A question is the unit: a resample draws questions, each with all its groups, so
that both sides of a ratio come from one draw. Source: this project (LEI tests whether irrelevant advice is
ignored; these ratios measure how far it is not).

Shape letters: N groups, R resamples, C columns of sums, K ratios.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from evaluation.protocols.bias.measures import Found, Frames, Place, add_estimates, add_statistic, compared
from evaluation.results import Results
from evaluation.shown.views import cells_of
from evaluation.statistics import Floats, Statistic

if TYPE_CHECKING:
    from pandas import DataFrame

MATCHED = ("ethical", "adversarial")
"""Classes of advice about the subjects' domain: the remaining share is `carry`; for the others, `kept`."""
LEAST = 1e-6
"""Below this value, |C| without advice is rounding error, and a ratio to it has no meaning."""
COMPARED = ("mu_K", "mean_abs_c_K", "mass_K", "delta_K", "eps_K")
"""Measures compared with the same questions without advice."""
SUMS = ("advised", "advised_c", "without", "without_c")
"""For a ratio: groups with the advice, their |C|, groups of the same questions without it, their |C|."""


def add_effects(results: Results, frames: Frames, place: Place) -> None:
    """Add changes, carry, kept and scope gap of one data set."""
    frames = {
        name: rows.assign(unit=rows["key"].str.rpartition("|")[0], abs_c=rows["c"].abs())
        for name, rows in frames.items()
    }
    for name, rows in frames.items():
        add_estimates(results, advised(rows, {**place, "checkpoint": name}), COMPARED)
    every = pd.concat(frames.values())
    for advice in every.loc[every["class"] != "none", "class"].unique():
        for domains in domain_places(every[every["class"] == advice]):
            at = {"class": advice, **domains}
            wanted = {"carry" if advice in MATCHED else "kept": [at]}
            if advice == "ethical":
                wanted["scope_gap"] = [{**at, "class": "mismatched_ethical"}, at]
            for measure, places in wanted.items():
                counted = {name: ratio_rows(rows, places) for name, rows in frames.items()}
                fields = tuple(f"{name}_{k}" for k in range(len(places)) for name in SUMS)
                statistic = Statistic(measure, fields, ratios, fewest)
                add_statistic(results, compared(counted, {**place, **at}), measure, statistic)


def advised(rows: DataFrame, place: Place) -> Found:
    """Yield the same questions without each class of advice and with it."""
    without = rows[rows["class"] == "none"].drop_duplicates("unit").set_index("unit", drop=False)
    for advice, part in rows[rows["unit"].isin(without.index)].groupby("class", sort=False):
        if advice != "none":
            yield {**place, "class": advice, "against": "class=none"}, [without.loc[part["unit"]], part]


def domain_places(rows: DataFrame) -> Iterator[Place]:
    """Yield domains of subjects and of advice: all; each of subjects; each with every other of advice."""
    yield {}
    for domain, part in rows[rows["domain"] != ""].groupby("domain"):
        yield {"domain": str(domain)}
        for other in sorted({*part["advice_domain"]} - {"", domain}):
            yield {"domain": str(domain), "advice_domain": other}


def ratio_rows(rows: DataFrame, places: Sequence[Place]) -> DataFrame:
    """Return the groups that count in ratios, by the places of those with advice, with SUMS columns."""
    columns, counted_N = dict[str, Floats](), np.zeros(len(rows), dtype=bool)
    for k, place in enumerate(places):
        found = cells_of(rows, place)
        advised_N = rows.index.isin(found.index)
        without_N = ((rows["class"] == "none") & rows["unit"].isin(found["unit"])).to_numpy()
        values = (advised_N, advised_N * rows["abs_c"], without_N, without_N * rows["abs_c"])
        columns |= zip((f"{name}_{k}" for name in SUMS), values, strict=True)
        counted_N |= advised_N | without_N
    return rows[["unit"]].assign(**columns)[counted_N]


def ratios(sums_RC: Floats) -> Floats:
    """Mean |C| with advice over mean |C| without; for two such ratios, the first minus the second."""
    sums_RK4 = sums_RC[:, 1:].reshape(len(sums_RC), -1, 4)
    advised_RK, advised_c_RK, without_RK, without_c_RK = np.moveaxis(sums_RK4, 2, 0)
    below_RK = without_c_RK / without_RK
    ratio_RK = advised_c_RK / advised_RK / np.where(below_RK > LEAST, below_RK, np.nan)
    return np.asarray(ratio_RK[:, 0] - ratio_RK[:, 1:].sum(axis=1))


def fewest(sum_C: Floats) -> float:
    """Groups with advice in the smaller ratio; 0 if none of their questions occurs without advice."""
    return min(advised if without else 0.0 for advised, _, without, _ in sum_C[1:].reshape(-1, 4))
