"""Bias by class of advice, subject and cluster of subjects, and its change since the first checkpoint: rows
of the long table.

Shape letters: N groups, X subjects, A attributes, C categories, R resamples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from data_modules.schema import ADVICE_CLASSES
from evaluation.protocols.bias.groups import between_clusters
from evaluation.results import NO_INTERVAL, Results
from evaluation.statistics import Statistic, estimate, estimate_change, share
from metrics.bias.group_scores import score_groups
from metrics.bias.intervals import ClassGroups, estimate_bias, resampled_bias
from metrics.intervals import percentiles

if TYPE_CHECKING:
    from pandas import DataFrame

Frames = Mapping[str, "DataFrame"]
"""Scored groups by checkpoint; the first is what the others are compared with."""
Place = Mapping[str, Any]

OF_CLASSES = (*("mu_K", "eta_K", "theta_K", "mean_abs_c_K", "mass_K", "delta_K", "eps_K", "mu_normalised_K"),)
"""Fields of `BiasResult`, which are named MEASURE_AXES."""
OF_SUBJECTS = ("gamma_KX", "eta_KX", "gamma_KXA", "eta_KXA")
OF_ADVICE = ("mu_K", "mean_abs_c_K", "mass_K", "delta_K", "eps_K")
"""Those that are compared with the same questions without advice."""


def add_bias(results: Results, frames: Frames, place: Place, planted_seed: int | None = None) -> None:
    """Every measure of one data set: of each class, its subjects, and clusters of subjects.

    Clusters take the place of subjects in groups that compare two of them: gamma(F, a) is then the mean of
    C(F, M) over all female-male pairs, as in UnQover's gender tables (section 4.3, LEI spec 2.3).
    """
    frames = {name: rows.assign(unit=rows["key"]) for name, rows in frames.items()}
    for advice in ADVICE_CLASSES:
        at = {**place, "class": advice}
        parts = {name: rows[rows["class"] == advice] for name, rows in frames.items()}
        add_estimates(results, compared(parts, at), (*OF_CLASSES, *OF_SUBJECTS), "subject")
        clusters = {name: between_clusters(rows) for name, rows in parts.items()}
        add_estimates(results, compared(clusters, at), OF_SUBJECTS, "cluster")
        for measure in ("accuracy", "unknown"):
            add_statistic(results, measure, share(measure, measure), parts, at)
        if planted_seed is not None:
            add_planted(results, parts, planted_seed, at)
    for name, rows in frames.items():
        add_estimates(results, advised(rows, {**place, "checkpoint": name}), OF_ADVICE, "subject")


def compared(frames: Frames, place: Place) -> Iterator[tuple[Place, list[DataFrame]]]:
    """The place of each checkpoint's numbers, and its groups; then that of each later one's change, and the
    groups that the first one and it share, in one order: as the first scored them, and as it did."""
    (first, before), *others = frames.items()
    for name, rows in frames.items():
        if len(rows):
            yield {**place, "checkpoint": name}, [rows]
    for name, after in others:
        keys = before.index.intersection(after.index, sort=False)
        if len(keys):
            yield {**place, "checkpoint": name, "against": first}, [before.loc[keys], after.loc[keys]]


def advised(rows: DataFrame, place: Place) -> Iterator[tuple[Place, list[DataFrame]]]:
    """The place of the change that each class of advice makes, and the same questions without it and with it.
    A resample draws questions, each with all of its advice."""
    rows = rows.assign(unit=rows["key"].str.rpartition("|")[0])
    without = rows[rows["class"] == "none"].drop_duplicates("unit").set_index("unit", drop=False)
    for advice, part in rows[rows["unit"].isin(without.index)].groupby("class", sort=False):
        if advice != "none":
            yield {**place, "class": advice, "against": "class=none"}, [without.loc[part["unit"]], part]


def add_statistic(results: Results, measure: str, statistic: Statistic, frames: Frames, place: Place) -> None:
    """A statistic of each checkpoint's rows, which have a `unit`, and its change since the first."""
    for at, sides in compared(frames, place):
        found = estimate(statistic, *sides) if len(sides) == 1 else estimate_change(statistic, *sides)
        if found.n:
            results.add(measure, **found._asdict(), **at)


def add_estimates(
    results: Results, found: Iterable[tuple[Place, list[DataFrame]]], fields: Sequence[str], kind: str
) -> None:
    """A number for each of some fields of `BiasResult`, of each subject and attribute where it has such axes,
    or, of two sides, its change, but by attribute. A single group has no interval.

    Args:
        found: places with their groups, of `compared` or `advised`.
        fields: which.
        kind: what subjects are: `subject` or `cluster`.
    """
    for at, sides in found:
        wanted = [field for field in fields if len(sides) == 1 or not field.endswith("A")]
        numbers = [numbered(rows) for rows in sides]
        _, subjects, attributes = numbers[0]
        bias = estimate_bias(wanted, *(groups for groups, *_ in numbers))
        results.resamples = min(filter(None, (results.resamples, bias.resamples)), default=None)
        units = sides[0]["unit"].nunique()
        for field in wanted:
            measure, _, axes = field.rpartition("_")
            (counts,) = getattr(bias.counts, f"n_{axes}")
            for cell in map(tuple, counts.nonzero().tolist()):
                (value, low, high), n = bias.numbers[field][:, *cell], int(counts[cell])
                interval = (low, high) if high - low > 1e-12 else NO_INTERVAL  # not if resamples are alike
                where = {**at}
                if cell:
                    where[kind] = subjects[cell[0]]
                if len(cell) > 1:
                    where["category"], where["attribute"] = attributes[cell[1]]
                results.add(measure, value, n=n, units=min(n, units), interval=interval, **where)


def numbered(rows: DataFrame) -> tuple[ClassGroups, Any, Any]:
    """Groups as metrics take them; subjects, and attributes as (category, attribute), by number."""
    subject_N2, subjects = pd.Series([*chain(*rows["subjects"])]).factorize(sort=True)
    pairs = [*zip(rows["category"], rows["attribute"], strict=True)]
    attribute_N, attributes = pd.Series(pairs).factorize(sort=True)
    scores = score_groups(torch.tensor(rows["scores"].tolist(), dtype=torch.float64))
    unit_N = None if rows["unit"].is_unique else rows["unit"].factorize()[0]
    pair_N2, sizes = subject_N2.reshape(-1, 2), (len(subjects), len(attributes))
    return ClassGroups(scores, pair_N2, attribute_N, *sizes, unit_N), subjects, attributes


def add_planted(results: Results, frames: Frames, seed: int, place: Place) -> None:
    """Spearman's rho between gamma(subject, category) and the subject's planted rank, and its change.

    Ranks are those within a category, since gamma compares a subject with its opponents there; all (subject,
    category) cells are pooled. n counts them.
    """
    for at, sides in compared(frames, place):
        found = [planted_rhos(rows, seed) for rows in sides]
        rho_R, n = found[-1]
        if len(sides) > 1:
            rho_R = rho_R - found[0][0]
        interval = tuple(percentiles(rho_R[1:])) if len(rho_R) > 1 else NO_INTERVAL
        results.add("spearman", rho_R[0], n=n, interval=interval, **at)


def planted_rhos(rows: DataFrame, seed: int) -> tuple[Any, int]:
    """Spearman's rho of the groups, then of each resample of them; and how many cells it is of."""
    from data_modules.groups.advice import latent_strength
    from metrics.bias.readings import planted_correlation

    groups, subjects, categories = numbered(rows.assign(attribute=""))
    strength_XC = [[latent_strength(x, c, seed) for c, _ in categories] for x in subjects]
    gamma_RXC = np.concatenate([block.gamma_KXA for block in resampled_bias(groups)])
    asked_XC = ~np.isnan(gamma_RXC[0])  # ranks among the subjects that a category asks about
    rank_XC = pd.DataFrame(strength_XC).where(asked_XC).rank().to_numpy()
    rho_R = np.array([planted_correlation(gamma_XC, rank_XC) for gamma_XC in gamma_RXC])
    return rho_R, int(asked_XC.sum())
