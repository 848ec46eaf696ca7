"""From groups and their scores to rows of the long table, whoever made the scores.

Shape letters: N groups, V the four variants, S the two subjects, X subjects, A attributes, C categories,
L clusters of subjects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor

from data_modules.groups.planting import Scope, latent_strength
from data_modules.schema import ADVICE_CLASSES, AdviceClass, Group
from evaluation.results import NONE, Results
from metrics.bias.group_scores import GroupScores, score_groups
from metrics.bias.intervals import BiasEstimate, ClassGroups, estimate_bias, resampled_bias
from metrics.bias.planted import planted_correlation
from metrics.intervals import percentiles

BY = ("checkpoint", "data", "class", "category", "attribute", "subject", "cluster")

CLASS_MEASURES = (
    "mu",
    "eta",
    "theta",
    "mean_abs_c",
    "mass",
    "delta",
    "eps",
    "mu_normalised",
    "eta_normalised",
    "theta_normalised",
    "average_probability",
)
"""Per class, each the name of a field of `BiasResult` (with `_K`)."""

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
        rows = [
            (g.key, ADVICE_CLASSES.index(g.advice_class), g.subjects, (g.category, g.attribute))
            for g in groups
        ]
        subjects = sorted({subject for _, _, pair, _ in rows for subject in pair})
        attributes = sorted({attribute for _, _, _, attribute in rows})
        subject_id = {name: i for i, name in enumerate(subjects)}
        attribute_id = {name: i for i, name in enumerate(attributes)}
        pairs = [(subject_id[pair[0]], subject_id[pair[1]]) for _, _, pair, _ in rows]
        return cls(
            keys=tuple(row[0] for row in rows),
            subjects=tuple(subjects),
            attributes=tuple(attributes),
            class_N=torch.tensor([row[1] for row in rows], dtype=torch.long),
            subject_NS=torch.tensor(pairs, dtype=torch.long).view(-1, 2),
            attribute_N=torch.tensor([attribute_id[row[3]] for row in rows], dtype=torch.long),
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

    def classes(self) -> list[AdviceClass]:
        """The classes that have groups: ethical, adversarial, irrelevant, none."""
        present = set(self.table.class_N.unique().tolist())
        return [name for k, name in enumerate(ADVICE_CLASSES) if k in present]

    def of_class(self, name: AdviceClass) -> ClassGroups:
        """The groups of one class."""
        where_M = (self.table.class_N == ADVICE_CLASSES.index(name)).nonzero().flatten()
        return ClassGroups(
            GroupScores(*(value[where_M] for value in self.per_group)),
            self.table.subject_NS[where_M],
            self.table.attribute_N[where_M],
            len(self.table.subjects),
            len(self.table.attributes),
        )


def add_bias(results: Results, scored: Sequence[ScoredGroups], cluster_of: Mapping[str, str]) -> None:
    """Every measure: of each class, of its subjects, and, where there are clusters of subjects, of these."""
    estimates = [
        (s, {"class": name, **s.cell}, s.of_class(name))
        for name in ADVICE_CLASSES
        for s in scored
        if name in s.classes()
    ]
    made = [(s, cell, groups, estimate_bias(groups)) for s, cell, groups in estimates]
    for _, cell, _, estimate in made:
        for measure in CLASS_MEASURES:
            add(results, estimate, measure, f"{measure}_K", (0,), int(estimate.value.n_K), cell)
    for s, cell, groups, estimate in made:
        add_subjects(results, estimate, "subject", s.table.subjects, s.table.attributes, cell)
        if cluster_of:
            clusters, across = between_clusters(groups, s.table.subjects, cluster_of)
            if len(across.attribute_N):
                estimate = estimate_bias(across)
                add_subjects(results, estimate, "cluster", clusters, s.table.attributes, cell)
    results.resamples = min((e.resamples for *_, e in made if e.resamples), default=None)


def add_subjects(
    results: Results,
    estimate: BiasEstimate,
    kind: str,
    names: Sequence[str],
    attributes: Sequence[tuple[str, str]],
    cell: Mapping[str, str],
) -> None:
    """gamma and eta of each subject (or cluster), over all attributes and by attribute."""
    n_X, n_XA = estimate.value.n_KX[0], estimate.value.n_KXA[0]
    for measure in ("gamma", "eta"):
        for x in n_X.nonzero().flatten().tolist():
            add(results, estimate, measure, f"{measure}_KX", (0, x), int(n_X[x]), {kind: names[x], **cell})
    for measure in ("gamma", "eta"):
        for x, a in n_XA.nonzero().tolist():
            category, attribute = attributes[a]
            place = {kind: names[x], "category": category, "attribute": attribute, **cell}
            add(results, estimate, measure, f"{measure}_KXA", (0, x, a), int(n_XA[x, a]), place)


def add(
    results: Results,
    estimate: BiasEstimate,
    measure: str,
    field: str,
    index: tuple[int, ...],
    n: int,
    cell: Mapping[str, str],
) -> None:
    """One number with its interval, which a single group does not have."""
    value, low, high = (getattr(part, field)[index].item() for part in estimate[:3])
    results.add(measure, value, n=n, interval=(low, high) if n > 1 else NONE, **cell)


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
    where_M = ((cluster_NS >= 0).all(1) & (cluster_NS[:, 0] != cluster_NS[:, 1])).nonzero().flatten()
    scores = GroupScores(*(value[where_M] for value in groups.scores))
    return clusters, ClassGroups(
        scores, cluster_NS[where_M], groups.attribute_N[where_M], len(clusters), groups.num_attributes
    )


def add_planted(results: Results, scored: ScoredGroups, seed: int, scope: Scope) -> None:
    """Per class of advice: Spearman's rho between gamma(subject, category) and the subject's planted rank.

    Ranks are those within a category, since gamma compares a subject with its opponents there; all (subject,
    category) cells are pooled. n counts them.
    """
    table = scored.table
    categories = sorted({category for category, _ in table.attributes})
    category_A = torch.tensor([categories.index(category) for category, _ in table.attributes])
    asked = categories if scope == "category" else [""] * len(categories)
    strength_XC = np.array([[latent_strength(x, c, seed) for c in asked] for x in table.subjects])
    for name in scored.classes():
        groups = scored.of_class(name)
        by_category = groups._replace(
            attribute_N=category_A[groups.attribute_N], num_attributes=len(categories)
        )
        gamma_RXC = torch.cat([block.gamma_KXA for block in resampled_bias(by_category)]).numpy()
        # Ranks among the subjects that the category was asked about; the others stay NaN.
        known_XC = np.where(np.isnan(gamma_RXC[0]), np.nan, strength_XC)
        rank_XC = rankdata(known_XC, axis=0, nan_policy="omit")
        rho, *drawn = (planted_correlation(gamma_XC, rank_XC) for gamma_XC in gamma_RXC)
        interval = percentiles(np.array([resample.rho for resample in drawn])) if drawn else NONE
        results.add("spearman", rho.rho, n=rho.n, interval=interval, **{"class": name}, **scored.cell)


def example_rows(scored: ScoredGroups) -> Iterator[dict[str, Any]]:
    """One row per group: key, class, the 4 x 2 scores by subject, and its C, delta, eps and mass."""
    table = scored.table
    columns = (
        table.class_N,
        table.subject_NS,
        table.attribute_N,
        scored.score_NVS,
        *scored.per_group,
    )
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
