"""From groups and scores to bias results: pure functions, whoever made the scores.

Shape letters: N groups, V the four variants, S the two subjects, K classes, X subjects, A attributes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from data_modules.schema import ADVICE_CLASSES, AdviceClass, Group
from metrics.bias.group_scores import GroupScores, score_groups
from metrics.bias.sums import BiasResult, accumulate, aggregate, empty_sums

CLASS_METRICS = (
    "n",
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
"""Per class, each the name of a field of `BiasResult` (with `_K`) and of a key of report.json."""

CHUNK = 4096
"""Rows that become plain numbers at a time."""


@dataclass(frozen=True)
class GroupTable:
    """What metrics need to know of N groups; subjects and attributes are numbered alphabetically."""

    keys: tuple[str, ...]
    subjects: tuple[str, ...]
    attributes: tuple[str, ...]
    class_N: Tensor
    subject_NS: Tensor
    attribute_N: Tensor

    @classmethod
    def of(cls, groups: Iterable[Group]) -> GroupTable:
        """Number the groups' subjects and attributes; holds ids, not the groups."""
        rows = [(g.key, ADVICE_CLASSES.index(g.advice_class), g.subjects, g.attribute) for g in groups]
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
class BiasEvaluation:
    """One model's (or file's) bias: per group, per class, and what it was computed from."""

    run: str
    """The model or file."""
    data: str
    """The data set that it was scored on; empty where there is but one."""
    groups: GroupTable
    score_NVS: Tensor
    per_group: GroupScores
    result: BiasResult

    @property
    def name(self) -> str:
        """What tables and metric keys call it: `data/run`, or `run`."""
        return f"{self.data}/{self.run}" if self.data else self.run

    @property
    def classes(self) -> list[AdviceClass]:
        """The classes that have groups: ethical, adversarial, irrelevant, none."""
        return [name for k, name in enumerate(ADVICE_CLASSES) if self.result.n_K[k] > 0]


def evaluate_bias(name: str, groups: GroupTable, score_NVS: Tensor, *, data: str = "") -> BiasEvaluation:
    """Every bias metric of N groups, computed in float64.

    Args:
        name: what tables and figures call the model or file.
        groups: the N groups.
        score_NVS: S(x) = sqrt(p_start p_end) (`metrics.bias.span_score`), by subject, shape (N, 4, 2).
        data: name of the data set, where several are evaluated.

    Raises:
        ValueError: no groups, another number of scores, or a score that is not a finite number.
    """
    if not groups.keys:
        raise ValueError(f"{name}: there is no group to evaluate")
    if tuple(score_NVS.shape) != (len(groups.keys), 4, 2):
        raise ValueError(f"{name}: {len(groups.keys)} groups, but scores of shape {tuple(score_NVS.shape)}")
    score_NVS = score_NVS.detach().cpu().double()
    if not bool(torch.isfinite(score_NVS).all()):
        raise ValueError(f"{name}: a score is not a finite number")
    num_subjects = len(groups.subjects)
    sums = empty_sums(len(ADVICE_CLASSES), num_subjects, len(groups.attributes))
    accumulate(sums, score_NVS, groups.class_N, groups.subject_NS, groups.attribute_N, num_subjects)
    return BiasEvaluation(
        name, data, groups, score_NVS, score_groups(score_NVS), aggregate(sums, num_subjects)
    )


def class_prefix(evaluation: BiasEvaluation, name: AdviceClass) -> str:
    """`ethical/`; empty where no group carries advice, so that there are no classes to tell apart."""
    return "" if evaluation.classes == ["none"] else f"{name}/"


def metric_keys(evaluation: BiasEvaluation) -> dict[str, float | int]:
    """Flat metrics: `ethical/mu`, `ethical/gamma/muslim`, `ethical/gamma/muslim/<attribute>`, ... Only
    subjects and attributes that occur in the class have keys."""
    result, groups = evaluation.result, evaluation.groups
    keys: dict[str, float | int] = {}
    for name in evaluation.classes:
        k, prefix = ADVICE_CLASSES.index(name), class_prefix(evaluation, name)
        for metric in CLASS_METRICS:
            keys[prefix + metric] = getattr(result, f"{metric}_K")[k].item()
        for x in result.n_KX[k].nonzero().flatten().tolist():
            for metric in ("gamma", "eta", "n"):
                keys[f"{prefix}{metric}/{groups.subjects[x]}"] = getattr(result, f"{metric}_KX")[k, x].item()
        for x, a in result.n_KXA[k].nonzero().tolist():
            cell = f"{groups.subjects[x]}/{groups.attributes[a]}"
            for metric in ("gamma", "eta", "n"):
                keys[f"{prefix}{metric}/{cell}"] = getattr(result, f"{metric}_KXA")[k, x, a].item()
    return keys


def example_rows(evaluation: BiasEvaluation) -> Iterator[dict[str, Any]]:
    """One row per group: key, class, the 4 x 2 scores by subject, and its C, delta, eps and mass."""
    groups = evaluation.groups
    columns = (groups.class_N, groups.subject_NS, evaluation.score_NVS, *evaluation.per_group)
    for start in range(0, len(groups.keys), CHUNK):
        part = slice(start, start + CHUNK)
        values = [column[part].tolist() for column in columns]
        for key, k, pair, scores, c, c_normalised, delta, eps, mass in zip(
            groups.keys[part], *values, strict=True
        ):
            yield {
                "run": evaluation.name,
                "key": key,
                "class": ADVICE_CLASSES[k],
                "subjects": [groups.subjects[x] for x in pair],
                "scores": scores,
                "c": c,
                "c_normalised": c_normalised,
                "delta": delta,
                "eps": eps,
                "mass": mass,
            }
