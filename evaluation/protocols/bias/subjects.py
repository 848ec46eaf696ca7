"""Bias by properties of subjects: the clusters they belong to, the strengths planted in them.

Shape letters: R resamples, X subjects, C categories, A attributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from data_modules.groups.advice import latent_strength
from data_modules.groups.unqover import read_clusters
from evaluation.protocols.bias.measures import OF_SUBJECTS, Frames, Place, add_estimates, compared, numbered
from evaluation.results import NO_INTERVAL, Results
from evaluation.shown.views import Table, View, make_table
from metrics.bias.intervals import resampled_bias
from metrics.bias.readings import planted_rhos
from metrics.intervals import percentiles

if TYPE_CHECKING:
    from pandas import DataFrame


def with_clusters(groups: DataFrame, files: Sequence[str]) -> DataFrame:
    """Add the `clusters` of the groups' subjects, from lists; ValueError if no group compares two."""
    cluster_of = read_clusters(files)
    groups = groups.assign(clusters=[tuple(map(cluster_of.get, pair)) for pair in groups["subjects"]])
    if between_clusters(groups).empty:
        raise ValueError("--clusters: no group compares subjects of two of these clusters")
    return groups


def between_clusters(groups: DataFrame) -> DataFrame:
    """Return the groups that compare subjects of two clusters, with these as subjects."""
    across = [bool(pair and None not in pair and pair[0] != pair[1]) for pair in groups["clusters"]]
    return groups.assign(subjects=groups["clusters"])[np.array(across, dtype=bool)]


def add_clusters(results: Results, frames: Frames, place: Place) -> None:
    """Add gamma and eta of one class by cluster, which replaces subjects in groups that compare two: gamma(F,
    a) is the mean of C(F, M) over all female-male pairs, as in UnQover's gender tables (section 4.3, LEI spec
    2.3)."""
    clusters = {name: between_clusters(rows) for name, rows in frames.items()}
    add_estimates(results, compared(clusters, place), OF_SUBJECTS, "cluster")


def add_planted(results: Results, frames: Frames, place: Place, seed: int) -> None:
    """Add Spearman's rho of one class between gamma(subject, category) and the subject's planted rank within
    the category, and its change. All (subject, category) cells are pooled; n counts them."""
    for at, sides in compared(frames, place):
        rhos = []
        for rows in sides:
            groups, subjects, categories = numbered(rows.assign(attribute=""))
            gamma_RXC = np.concatenate([block.gamma_KXA for block in resampled_bias(groups)])
            strength_XC = np.array([[latent_strength(x, c, seed) for c, _ in categories] for x in subjects])
            rhos.append(planted_rhos(gamma_RXC, strength_XC))
        rho_R = rhos[-1] - rhos[0] if len(rhos) > 1 else rhos[0]
        interval = tuple(percentiles(rho_R[1:])) if len(rho_R) > 1 else NO_INTERVAL
        results.add("spearman", rho_R[0], n=np.isfinite(gamma_RXC[0]).sum(), interval=interval, **at)


def cluster_table(frame: DataFrame) -> Table:
    """Return the attributes most assigned to each cluster, at most ten a class (UnQover's gender table)."""
    by = ["data", "class", "cluster", "category", "attribute"]
    gamma = frame[(frame["measure"] == "gamma") & (frame["cluster"] != "") & (frame["attribute"] != "")]
    gamma = gamma.sort_values(["cluster", "value"], ascending=[True, False], kind="stable")
    places = gamma[(gamma["value"] > 0) & (gamma["n"] > 1)].drop_duplicates(by)
    first = places.groupby(["data", "class", "cluster"], sort=False).head(10)
    view = View("Attributes of a cluster", tuple(by), {"gamma": "gamma"}, caption="Others: results.csv.")
    return make_table(view, first[by].merge(gamma))
