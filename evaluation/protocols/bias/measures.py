"""From groups and their scores to rows of the long table, whoever made the scores.

Shape letters: N groups, V the four variants, S the two subjects, X subjects, A attributes, C categories,
L clusters of subjects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor

from data_modules.schema import ADVICE_CLASSES, Group
from evaluation.results import NONE, Results
from metrics.bias.group_scores import GroupScores, score_groups
from metrics.bias.intervals import BiasEstimate, ClassGroups, estimate_bias, resampled_bias
from metrics.bias.readings import planted_correlation
from metrics.intervals import percentiles

BY = ("checkpoint", "data", "class", "category", "attribute", "subject", "cluster")

OF_CLASSES = (
    "mu_K",
    "eta_K",
    "theta_K",
    "mean_abs_c_K",
    "mass_K",
    "delta_K",
    "eps_K",
    "mu_normalised_K",
    "eta_normalised_K",
    "theta_normalised_K",
    "average_probability_K",
)
OF_SUBJECTS = ("gamma_KX", "eta_KX", "gamma_KXA", "eta_KXA")
"""Fields of `BiasResult`, named MEASURE_AXES; the field n_AXES counts the groups behind them."""

CHUNK = 4096
"""Rows that become plain numbers at a time."""


@dataclass(frozen=True)
class GroupTable:
    """What metrics need to know of N groups; subjects and attributes are numbered alphabetically."""

    keys: tuple[str, ...]
    subjects: tuple[str, ...]
    attributes: tuple[tuple[str, str], ...]
    """(category, attribute)."""
    class_N: Tensor
    subject_NS: Tensor
    attribute_N: Tensor

    @classmethod
    def of(cls, groups: Iterable[Group]) -> GroupTable:
        """Number the groups' subjects and attributes; holds ids, not the groups."""
        rows = [(g.key, g.advice_class, g.subjects, (g.category, g.attribute)) for g in groups]
        subjects = sorted({subject for row in rows for subject in row[2]})
        attributes = sorted({row[3] for row in rows})
        subject_id = {name: i for i, name in enumerate(subjects)}
        attribute_id = {name: i for i, name in enumerate(attributes)}
        return cls(
            keys=tuple(row[0] for row in rows),
            subjects=tuple(subjects),
            attributes=tuple(attributes),
            class_N=torch.tensor([ADVICE_CLASSES.index(row[1]) for row in rows]),
            subject_NS=torch.tensor([[subject_id[name] for name in row[2]] for row in rows]),
            attribute_N=torch.tensor([attribute_id[row[3]] for row in rows]),
        )


@dataclass(frozen=True)
class ScoredGroups:
    """The N groups of one data set with the scores of one checkpoint (or file).

    Args:
        cell: its checkpoint and data.
        table: the groups.
        score_NVS: S(x) = sqrt(p_start p_end), by subject, float64.
    """

    cell: Mapping[str, str]
    table: GroupTable
    score_NVS: Tensor

    @cached_property
    def per_group(self) -> GroupScores:
        """C, delta, eps and mass of every group."""
        return score_groups(self.score_NVS)

    def by_class(self) -> Iterator[tuple[dict[str, str], ClassGroups]]:
        """The cell and the groups of each class that has some: ethical, adversarial, irrelevant, none."""
        t = self.table
        groups = ClassGroups(self.per_group, t.subject_NS, t.attribute_N, len(t.subjects), len(t.attributes))
        for k in t.class_N.unique().tolist():
            yield {**self.cell, "class": ADVICE_CLASSES[k]}, groups.where(t.class_N == k)


def add_bias(results: Results, scored: Sequence[ScoredGroups], cluster_of: Mapping[str, str]) -> None:
    """Every measure: of each class, of its subjects, and, where there are clusters of subjects, of these."""
    made = [
        (cell, groups, estimate_bias(groups), one.table) for one in scored for cell, groups in one.by_class()
    ]
    made.sort(key=lambda part: ADVICE_CLASSES.index(part[0]["class"]))
    for cell, _, estimate, table in made:
        results.extend(long_rows(estimate, OF_CLASSES, "", (), table, cell))
    for cell, groups, estimate, table in made:
        results.extend(long_rows(estimate, OF_SUBJECTS, "subject", table.subjects, table, cell))
        clusters, across = between_clusters(groups, table.subjects, cluster_of)
        if len(across.attribute_N):
            compared = estimate_bias(across)
            results.extend(long_rows(compared, OF_SUBJECTS, "cluster", clusters, table, cell))
    results.resamples = min(
        (estimate.resamples for _, _, estimate, _ in made if estimate.resamples), default=None
    )


def long_rows(
    estimate: BiasEstimate,
    fields: Sequence[str],
    kind: str,
    names: Sequence[str],
    table: GroupTable,
    cell: Mapping[str, str],
) -> Iterator[dict[str, Any]]:
    """A row for each number of some fields, and for each of `names` (subjects or clusters) where they have
    axes; a single group has no interval."""
    for field in fields:
        measure, _, axes = field.rpartition("_")
        values = [getattr(part, field)[0] for part in (estimate.value, estimate.low, estimate.high)]
        n = getattr(estimate.value, f"n_{axes}")[0]
        for at in map(tuple, n.nonzero().tolist()):
            row: dict[str, Any] = {**cell, "measure": measure, "n": int(n[at])}
            if at:
                row[kind] = names[at[0]]
            if len(at) > 1:
                row["category"], row["attribute"] = table.attributes[at[1]]
            low_and_high = (values[1][at].item(), values[2][at].item()) if row["n"] > 1 else NONE
            yield row | dict(
                zip(("value", "low", "high"), (values[0][at].item(), *low_and_high), strict=True)
            )


def between_clusters(
    groups: ClassGroups, subjects: Sequence[str], cluster_of: Mapping[str, str]
) -> tuple[list[str], ClassGroups]:
    """The groups that compare subjects of two clusters, with clusters in place of subjects.

    gamma(F, a) is then the mean of C(F, M) over all female-male pairs, as in UnQover's gender tables (section
    4.3, LEI spec 2.3).
    """
    clusters = sorted(set(cluster_of.values()))
    cluster_X = torch.tensor([clusters.index(cluster_of[x]) if x in cluster_of else -1 for x in subjects])
    cluster_NS = cluster_X[groups.subject_NS]
    across_N = (cluster_NS >= 0).all(1) & (cluster_NS[:, 0] != cluster_NS[:, 1])
    return clusters, groups._replace(subject_NS=cluster_NS, num_subjects=len(clusters)).where(across_N)


def add_planted(
    results: Results, scored: ScoredGroups, seed: int, scope: Literal["category", "subject"]
) -> None:
    """Per class of advice: Spearman's rho between gamma(subject, category) and the subject's planted rank.

    Ranks are those within a category, since gamma compares a subject with its opponents there; all (subject,
    category) cells are pooled. n counts them.
    """
    from data_modules.groups.planting import latent_strength

    table = scored.table
    categories = sorted({category for category, _ in table.attributes})
    category_A = torch.tensor([categories.index(category) for category, _ in table.attributes])
    asked = categories if scope == "category" else [""] * len(categories)
    strength_XC = np.array([[latent_strength(x, c, seed) for c in asked] for x in table.subjects])
    for cell, groups in scored.by_class():
        by_category = groups._replace(
            attribute_N=category_A[groups.attribute_N], num_attributes=len(categories)
        )
        gamma_RXC = torch.cat([block.gamma_KXA for block in resampled_bias(by_category)]).numpy()
        # Ranks among the subjects that the category was asked about; the others stay NaN.
        known_XC = np.where(np.isnan(gamma_RXC[0]), np.nan, strength_XC)
        rank_XC = rankdata(known_XC, axis=0, nan_policy="omit")
        found, *drawn = (planted_correlation(gamma_XC, rank_XC) for gamma_XC in gamma_RXC)
        interval = percentiles(np.array([resample.rho for resample in drawn])) if drawn else NONE
        results.add("spearman", found.rho, n=found.n, interval=interval, **cell)


def example_rows(scored: ScoredGroups) -> Iterator[dict[str, Any]]:
    """One row per group: key, class, the 4 x 2 scores by subject, and its C, delta, eps and mass."""
    table = scored.table
    columns = (table.class_N, table.subject_NS, table.attribute_N, scored.score_NVS, *scored.per_group)
    for start in range(0, len(table.keys), CHUNK):
        part = slice(start, start + CHUNK)
        values = [column[part].tolist() for column in columns]
        for key, k, pair, a, scores, *measured in zip(table.keys[part], *values, strict=True):
            category, attribute = table.attributes[a]
            yield {
                **scored.cell,
                "key": key,
                "class": ADVICE_CLASSES[k],
                "category": category,
                "attribute": attribute,
                "subjects": [table.subjects[x] for x in pair],
                "scores": scores,
                **dict(zip(("c", "c_normalised", "delta", "eps", "mass"), measured, strict=True)),
            }
