"""Numbers of bias by class of advice: of groups, of their subjects and clusters, each with its
change since the first checkpoint; and the effects of advice, on bias for the same questions, and as
the remaining share of |C|, over all and by domain.

    carry      |C| under advice about the subjects' domain / |C| of the same questions without
    kept       the same under advice about something else
    scope gap  kept of irrelevant advice - carry of ethical advice

|C| is its mean over groups. A unit has the groups of both sides of a ratio. Source: this project
(LEI tests whether irrelevant advice is ignored; these ratios measure how far it is not).

Shape letters: N groups, R sets of rows, C columns of sums, K ratios.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
from pandas import DataFrame

from interventune.data_modules.schema.groups import ADVICE_CLASSES, latent_strength
from interventune.evaluation.protocol import (
    Estimate,
    Number,
    OfRows,
    Protocol,
    Row,
    Statistic,
    View,
    compared,
    declared,
    estimate,
)
from interventune.evaluation.shown.views import Table, cells_of
from interventune.evaluation.statistics import Floats, by_seed
from interventune.metrics.bias.intervals import ClassGroups, maxima

Pairs = Iterable[tuple[Row, list[DataFrame]]]
"""Places of numbers with their groups; for a change, both sides in the same order."""

CELL = ("data", "class")
CATEGORY = ["category", "attribute"]
OPTIONAL = ["data", "domain", "advice_domain", *CATEGORY, "clusters"]
"""Fields that are empty, and so left out, in the rows of some sources."""
STATISTICS: dict[str, Statistic] = declared(__file__, "statistics.yaml")["measures"]
SUBJECTS = Protocol(**declared(__file__))
MATCHED = ("ethical", "adversarial")
"""Classes of advice about the subjects' domain: the remaining share is `carry`; for the others,
`kept`.
"""
LEAST = 1e-6
"""Below this value, |C| without advice is rounding error, and a ratio to it has no meaning."""


def numbers(
    rows: DataFrame, names: Sequence[str], planted_seed: int | None = None
) -> Iterator[Number]:
    """Yield the numbers of each data set that are not means of rows."""
    for data, groups in table(rows).groupby("data", sort=False):
        groups = with_units(groups)
        for advice in ADVICE_CLASSES:
            members = groups[groups["class"] == advice]
            pairs = [*compare(members, names, {"data": data, "class": advice})]
            yield from of_maxima(pairs, ["mu", "eta", "theta", "mu_normalised"])
            for measure, statistic in STATISTICS.items():
                yield from of_statistic(pairs, measure, statistic)
            yield from of_subjects(members, names)
            yield from of_subjects(between_clusters(members), names, "cluster")
            if planted_seed is not None:
                yield from of_planted(pairs, planted_seed)
        yield from effects(groups, names, {"data": data})


def table(rows: DataFrame) -> DataFrame:
    """Return the groups of all rows by key; `question` is the key without the advice. With several
    seeds, a key has a row for the `run` of each.
    """
    groups = rows.reindex(columns=rows.columns.union(OPTIONAL)).astype(object)
    groups = groups.fillna(dict.fromkeys(OPTIONAL[:3], ""))
    groups = groups.infer_objects().set_index("key", drop=False)
    return groups.assign(
        question=groups["key"].str.rpartition("|")[0], mean_abs_c=groups["c"].abs()
    )


def with_units(groups: DataFrame) -> DataFrame:
    """Add the `unit` of intervals with its plural: the attribute, which widens intervals more than
    the template or the pair, unless there is only one.
    """
    if groups.groupby(CATEGORY).ngroups == 1:
        return groups.assign(unit=groups["question"], units="questions")
    unit = groups["category"] + "|" + groups["attribute"]
    return groups.assign(unit=unit, units="attributes")


def compare(groups: DataFrame, names: Sequence[str], place: Row) -> Pairs:
    """Yield each checkpoint's groups; then, for the change of each later one, those shared with the
    first.
    """
    for name, members in groups.groupby("checkpoint", sort=False):
        yield {**place, "checkpoint": name}, [members]
    for change, before, after in compared(groups, "checkpoint", names[0], ()):
        keys = before.index.intersection(after.index, sort=False)
        if len(keys):
            yield {**place, **change}, [before.loc[keys], after.loc[keys]]


def of_statistic(pairs: Pairs, measure: str, statistic: Statistic) -> Iterator[Number]:
    """Yield a statistic of each checkpoint's groups, and its changes."""
    for place, sides in pairs:
        number = estimate(statistic, *reversed(sides))
        if number.n:
            yield Number(measure, place, number, sides[0]["units"].iloc[0])


def of_maxima(pairs: Pairs, measures: Sequence[str]) -> Iterator[Number]:
    """Yield mu, eta, theta or mu_normalised, or their changes and, as NAME_chance, the value of a
    model without preference: its mean, from 0 to the 95 % point.
    """
    for place, sides in pairs:
        seeds = [by_seed(side) for side in sides]
        if common := [seed for seed in seeds[0] if seed in seeds[-1]]:
            seeds = [{seed: side[seed] for seed in common} for side in seeds]
        counts = len(next(iter(seeds[0].values()))), sides[0]["question"].nunique()
        numbers = ([*map(numbered, side.values())] for side in seeds)
        for name, values in maxima(measures, *numbers, paired=bool(common)).items():
            for measure, (value, low, high, count, spread) in zip(
                (name, f"{name}_chance"), values, strict=True
            ):
                if len(sides) == 1 or measure == name:
                    estimated = Estimate(value, low, high, *counts, count, spread)
                    yield Number(measure, place, estimated, "questions")


def numbered(groups: DataFrame) -> ClassGroups:
    """Return groups as input of metrics: subjects, attributes and questions by number."""
    subject_N2, _ = pd.Series([*chain(*groups["subjects"])]).factorize(sort=True)
    attribute_N, unit_N = (groups.groupby(by).ngroup().to_numpy() for by in (CATEGORY, "question"))
    c_N, c_normalised_N = (groups[name].to_numpy(np.float64) for name in ("c", "c_normalised"))
    return ClassGroups(c_N, c_normalised_N, subject_N2.reshape(-1, 2), attribute_N, unit_N)


def of_subjects(groups: DataFrame, names: Sequence[str], kind: str = "subject") -> Iterator[Number]:
    """Yield gamma and eta of each subject or, with that `kind`, cluster: over all attributes, and
    of each.
    """
    if groups.empty:
        return
    sides = pd.concat([by_subject(groups[groups["checkpoint"] == name], kind) for name in names])
    cell = (*CELL, kind)
    overall = replace(SUBJECTS, units=groups["units"].iloc[0], cells=[cell])
    yield from overall.numbers(sides, names)
    of_each = replace(SUBJECTS, unit="question", units="questions", cells=[(*cell, *CATEGORY)])
    yield from of_each.numbers(sides, names)


def by_subject(groups: DataFrame, kind: str = "subject") -> DataFrame:
    """Return the groups from the perspective of their first, then of their second subject."""
    return pd.concat(
        [
            groups.assign(gamma=c_N, eta=np.sign(c_N), **{kind: groups["subjects"].str[i]})
            for i, c_N in enumerate((groups["c"], -groups["c"]))
        ]
    )


def between_clusters(groups: DataFrame) -> DataFrame:
    """Return the groups that compare subjects of two clusters, with these as subjects: then
    gamma(F, a) is the mean of C(F, M) over all female-male pairs, as in UnQover's gender tables (Li
    et al. 2020, section 4.3).
    """
    subjects = groups["clusters"].astype(object)
    return groups.assign(subjects=subjects)[subjects.map(differ).astype(bool)]


def differ(clusters: Any) -> bool:
    """Whether two subjects belong to different clusters; they may have none."""
    return isinstance(clusters, (tuple, list)) and None not in clusters and len({*clusters}) > 1


def of_planted(pairs: Pairs, seed: int) -> Iterator[Number]:
    """Yield Spearman's rho of one class between gamma(subject, category) and the subject's planted
    rank within the category, and its change. All (subject, category) cells are pooled; n counts
    them.
    """
    fields = ("c", "subjects", "category")
    rho = OfRows("rho", fields, partial(planted_rho, seed=seed), limits=(-1, 1))
    for place, sides in pairs:
        (number,) = of_statistic([(place, sides)], "spearman", rho)
        cells = by_subject(sides[0]).groupby(["category", "subject"]).ngroups
        yield number._replace(estimate=number.estimate._replace(n=cells))


def planted_rho(groups: DataFrame, seed: int) -> float:
    """Return rho of groups; NaN for one cell, or only ties."""
    gamma = by_subject(groups).groupby(["category", "subject"])["gamma"].mean()
    strength = [latent_strength(subject, category, seed) for category, subject in gamma.index]
    rank = pd.Series(strength, gamma.index).groupby("category").rank()
    return float(gamma.rank().corr(rank.rank()))


def cluster_table(frame: DataFrame) -> Table:
    """Return the attributes most assigned to each cluster, at most ten a class (UnQover's gender
    table).
    """
    by = [*CELL, "cluster", *CATEGORY]
    gamma = cells_of(frame, {"measure": "gamma", "cluster": None, "attribute": None})
    gamma = gamma.sort_values(["cluster", "value"], ascending=[True, False], kind="stable")
    places = gamma[(gamma["value"] > 0) & (gamma["n"] > 1)].drop_duplicates(by)
    first = places.groupby([*CELL, "cluster"], sort=False).head(10)
    view = View(
        "Attributes of a cluster", tuple(by), {"gamma": "gamma"}, caption="Others: results.csv."
    )
    return view(first[by].merge(gamma))


def effects(groups: DataFrame, names: Sequence[str], place: Row) -> Iterator[Number]:
    """Yield changes, carry, kept and scope gap of one data set."""
    checkpoints = [*groups.groupby("checkpoint", sort=False)]
    for name, members in checkpoints:
        pairs = [*advised(members, {**place, "checkpoint": name})]
        yield from of_maxima(pairs, ["mu"])
        for measure in ("mean_abs_c", "mass", "delta", "eps"):
            yield from of_statistic(pairs, measure, STATISTICS[measure])
    for advice in groups.loc[groups["class"] != "none", "class"].unique():
        for domains in domain_places(groups[groups["class"] == advice]):
            at = {"class": advice, **domains}
            places_of = {"carry" if advice in MATCHED else "kept": [at]}
            if advice == "ethical":
                places_of["scope_gap"] = [{**at, "class": "irrelevant"}, at]
            for measure, places in places_of.items():
                sums = pd.concat([ratio_rows(members, places) for _, members in checkpoints])
                fields = tuple(name for name in sums if name.startswith(("advised", "without")))
                limits = None if measure == "scope_gap" else (0, math.inf)
                statistic = Statistic(measure, fields, ratios, fewest, limits=limits)
                by_checkpoint = compare(sums, names, {**place, **at})
                yield from of_statistic(by_checkpoint, measure, statistic)


def advised(groups: DataFrame, place: Row) -> Pairs:
    """Yield the same questions without each class of advice and with it."""
    by = [name for name in ("run", "question") if name in groups]
    without = groups[groups["class"] == "none"].drop_duplicates(by).set_index(by, drop=False)
    shared = groups[groups.set_index(by).index.isin(without.index)]
    for advice, part in shared.groupby("class", sort=False):
        if advice != "none":
            twins = without.reindex(part.set_index(by).index).set_axis(part.index)
            yield {**place, "class": advice, "against": "class=none"}, [twins, part]


def domain_places(groups: DataFrame) -> Iterator[Row]:
    """Yield domains of subjects and of advice: all; each of subjects; each with every other of
    advice.
    """
    yield {}
    for domain, part in groups[groups["domain"] != ""].groupby("domain"):
        yield {"domain": domain}
        for other in sorted({*part["advice_domain"]} - {"", domain}):
            yield {"domain": domain, "advice_domain": other}


def ratio_rows(groups: DataFrame, places: Sequence[Row]) -> DataFrame:
    """Return the groups that count in ratios, by the places of those with advice, with four columns
    for each ratio: groups with the advice, their |C|, groups of the same questions without it,
    their |C|.
    """
    columns = dict[str, Any]()
    counted_N = np.zeros(len(groups), dtype=bool)
    for k, place in enumerate(places):
        advised = cells_of(groups, place)
        bare_N = (groups["class"] == "none") & groups["question"].isin(advised["question"])
        for name, chosen_N in {
            "advised": groups.index.isin(advised.index),
            "without": bare_N.to_numpy(),
        }.items():
            columns |= {f"{name}_{k}": chosen_N, f"{name}_c_{k}": chosen_N * groups["mean_abs_c"]}
            counted_N |= chosen_N
    names = [name for name in ("checkpoint", "run", "unit", "units") if name in groups]
    return groups[names].assign(**columns)[counted_N]


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
