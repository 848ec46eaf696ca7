"""Bias by properties of subjects: the clusters they belong to, the strengths planted in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from interventune.data_modules.groups.advice import latent_strength
from interventune.data_modules.groups.unqover import read_clusters
from interventune.evaluation.protocol import Estimate, Number, View
from interventune.evaluation.shown.views import Table, make_table
from interventune.metrics.bias.readings import planted_correlation
from interventune.metrics.intervals import interval, jackknife_error

from .measures import (
    Frames,
    Place,
    compared,
    of_subject,
    of_subjects,
)

if TYPE_CHECKING:
    from pandas import DataFrame


def with_clusters(groups: DataFrame, files: Sequence[str]) -> DataFrame:
    """Add the `clusters` of the groups' subjects, from lists; ValueError if no group
    compares two.
    """
    cluster_of = read_clusters(files)
    groups = groups.assign(
        clusters=[tuple(map(cluster_of.get, pair)) for pair in groups["subjects"]]
    )
    if between_clusters(groups).empty:
        raise ValueError("--clusters: no group compares subjects of two of these clusters")
    return groups


def between_clusters(groups: DataFrame) -> DataFrame:
    """Return the groups that compare subjects of two clusters, with these as subjects."""
    across = [bool(pair and None not in pair and pair[0] != pair[1]) for pair in groups["clusters"]]
    return groups.assign(subjects=groups["clusters"])[np.array(across, dtype=bool)]


def of_clusters(frames: Frames) -> Iterator[Number]:
    """Yield gamma and eta of one class by cluster, which replaces subjects in groups that compare
    two: gamma(F, a) is the mean of C(F, M) over all female-male pairs, as in UnQover's gender
    tables (Li et al. 2020, section 4.3).
    """
    clusters = {name: between_clusters(rows) for name, rows in frames.items()}
    yield from of_subjects(clusters, "cluster")


def of_planted(frames: Frames, place: Place, seed: int) -> Iterator[Number]:
    """Yield Spearman's rho of one class between gamma(subject, category) and the subject's planted
    rank within the category, and its change. All (subject, category) cells are pooled; n counts
    them.
    """
    for at, sides in compared(frames, place):
        units = [*sides[0].groupby("unit").indices.values()]
        value, *others = (
            np.subtract.reduce(
                [planted_rho(rows.drop(rows.index[left_out]), seed)[0] for rows in sides[::-1]]
            )
            for left_out in ([], *units)
        )
        error, limits = (
            jackknife_error(value, np.array(others)),
            None if len(sides) > 1 else (-1, 1),
        )
        ends = interval(value, error, len(units), limits)
        _, n = planted_rho(sides[0], seed)
        rho = Estimate(value, (ends[0], ends[1]), n, len(units))
        yield Number("spearman", at, rho, sides[0]["units"].iloc[0])


def planted_rho(rows: DataFrame, seed: int) -> tuple[float, int]:
    """Return rho of groups, and the number of cells."""
    both = pd.concat([of_subject(rows, "subject", i) for i in (0, 1)])
    gamma = both.groupby(["category", "subject"])["gamma"].mean()
    strength = [latent_strength(subject, category, seed) for category, subject in gamma.index]
    rank = pd.Series(strength, gamma.index).groupby("category").rank()
    return planted_correlation(gamma, rank), len(gamma)


def cluster_table(frame: DataFrame) -> Table:
    """Return the attributes most assigned to each cluster, at most ten a class (UnQover's gender
    table).
    """
    by = ["data", "class", "cluster", "category", "attribute"]
    gamma = frame[
        (frame["measure"] == "gamma") & (frame["cluster"] != "") & (frame["attribute"] != "")
    ]
    gamma = gamma.sort_values(["cluster", "value"], ascending=[True, False], kind="stable")
    places = gamma[(gamma["value"] > 0) & (gamma["n"] > 1)].drop_duplicates(by)
    first = places.groupby(["data", "class", "cluster"], sort=False).head(10)
    view = View(
        "Attributes of a cluster", tuple(by), {"gamma": "gamma"}, caption="Others: results.csv."
    )
    return make_table(view, first[by].merge(gamma))
