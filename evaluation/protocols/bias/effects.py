"""What advice does to |C|, over all and by domain: rows of the long table.

    carry     = |C| under advice about the subjects' domain / |C| of the same questions without advice
    kept      = |C| under advice about another domain, or none / |C| of the same questions without advice
    scope gap = kept (mismatched ethical advice) - carry (ethical advice)

|C| is its mean over groups. A question is the unit: a resample draws questions, each with all that was asked
of it, so that both sides of a ratio are of one draw. Source: this project (LEI asks whether irrelevant advice
is ignored; these say by how much it is not).

Shape letters: N groups, R resamples, C columns of sums, 4 those of a ratio.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from evaluation.protocols.bias.measures import Frames, Place, add_statistic
from evaluation.results import Results
from evaluation.shown.views import cells_of
from evaluation.statistics import Floats, Statistic

if TYPE_CHECKING:
    from pandas import DataFrame

MATCHED = ("ethical", "adversarial")
"""Classes of advice that speaks of the subjects' domain: what it leaves is `carry`; of the others, `kept`."""
LEAST = 1e-6
"""|C| without advice below it is rounding: ratios to it would tell nothing."""


def fields(name: str) -> tuple[str, ...]:
    """Of a ratio: groups with the advice, their |C|, groups that ask the same without it, their |C|."""
    return f"{name}_advised", f"{name}_advised_c", f"{name}_without", f"{name}_without_c"


def ratio(sums_R4: Floats) -> Floats:
    """Mean |C| with advice over mean |C| without, of the sums of `fields`."""
    advised_R, advised_c_R, without_R, without_c_R = sums_R4.T
    below_R = without_c_R / without_R
    return np.asarray(advised_c_R / advised_R / np.where(below_R > LEAST, below_R, np.nan))


def counted(sum_4: Floats) -> float:
    """The groups with advice; 0 where none of their questions is asked without."""
    return float(sum_4[0]) if sum_4[2] else 0.0


RATIO = Statistic(
    "ratio", fields("ratio"), lambda sums_RC: ratio(sums_RC[:, 1:]), lambda sum_C: counted(sum_C[1:])
)
GAP = Statistic(
    "scope gap",
    (*fields("kept"), *fields("carry")),
    lambda sums_RC: ratio(sums_RC[:, 1:5]) - ratio(sums_RC[:, 5:]),
    lambda sum_C: min(counted(sum_C[1:5]), counted(sum_C[5:])),
)


def add_effects(results: Results, frames: Frames, place: Place) -> None:
    """Carry, kept and scope gap of one data set."""
    frames = {
        name: rows.assign(unit=rows["key"].str.rpartition("|")[0], abs_c=rows["c"].abs())
        for name, rows in frames.items()
    }
    every = pd.concat(frames.values())
    for advice in every.loc[every["class"] != "none", "class"].unique():
        measure = "carry" if advice in MATCHED else "kept"
        for domains in domain_places(every[every["class"] == advice]):
            at = {"class": advice, **domains}
            ratios = {name: ratio_rows(rows, ratio=at) for name, rows in frames.items()}
            add_statistic(results, measure, RATIO, ratios, {**place, **at})
            if advice == "ethical":
                kept = {**at, "class": "mismatched_ethical"}
                gaps = {name: ratio_rows(rows, carry=at, kept=kept) for name, rows in frames.items()}
                add_statistic(results, "scope_gap", GAP, gaps, {**place, **at})


def domain_places(rows: DataFrame) -> Iterator[Place]:
    """Domains of subjects and of advice: all; each of subjects; each with every other that advice names."""
    yield {}
    for domain, part in rows[rows["domain"] != ""].groupby("domain"):
        yield {"domain": str(domain)}
        for other in sorted({*part["advice_domain"]} - {"", domain}):
            yield {"domain": str(domain), "advice_domain": other}


def ratio_rows(rows: DataFrame, **places: Place) -> DataFrame:
    """The groups that count in ratios of these names, given where those with advice are, with their
    `fields`."""
    columns, counted_N = dict[str, Floats](), np.zeros(len(rows), dtype=bool)
    for name, place in places.items():
        found = cells_of(rows, place)
        advised_N = rows.index.isin(found.index)
        without_N = ((rows["class"] == "none") & rows["unit"].isin(found["unit"])).to_numpy()
        values = (advised_N, advised_N * rows["abs_c"], without_N, without_N * rows["abs_c"])
        columns |= zip(fields(name), values, strict=True)
        counted_N |= advised_N | without_N
    return rows[["unit"]].assign(**columns)[counted_N]
