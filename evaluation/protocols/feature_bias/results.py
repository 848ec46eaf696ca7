"""Shares of the feature-bias protocol from its rows: by model, task, intervention and steered feature."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, NamedTuple

from data_modules.tasks.feature_bias import AGREEING, CELLS, Cell
from metrics.feature_bias import FeatureAccuracy, feature_accuracy

IN_CONTEXT, FINE_TUNED = "in context", "fine-tuned"
"""How a model learned."""


class Key(NamedTuple):
    """What one number is of."""

    model: str
    task: str
    intervention: str
    steer: str

    def parts(self) -> list[str]:
        """Of a metric key, without the model."""
        return [part for part in (self.task, self.intervention, self.steer) if part]


@dataclass
class Result:
    """The shares of one model on one task under one intervention."""

    how: str
    accuracy: FeatureAccuracy
    uncalibrated: FeatureAccuracy
    agreement: float
    n: dict[Cell, int]
    """Texts with an answer, of one set on average."""
    failures: Counter[str] = field(default_factory=Counter)

    def intended(self, steer: str) -> float:
        """The share that follows the feature that is meant."""
        return self.accuracy.h2 if steer == "h2" else self.accuracy.h1


def results_of(rows: Sequence[Mapping[str, Any]]) -> dict[Key, Result]:
    """Shares by model, task, intervention and steer."""
    groups: dict[Key, list[Mapping[str, Any]]] = {}
    for row in rows:
        key = Key(row["model"], row["task"], row["intervention"], row["steer"])
        groups.setdefault(key, []).append(row)
    return {key: result_of(its) for key, its in groups.items()}


def result_of(rows: Sequence[Mapping[str, Any]]) -> Result:
    """The shares of some rows, over their seeds."""
    seeds = sorted({row["seed"] for row in rows})
    answered = [row for row in rows if "failure" not in row]
    cells = {
        (seed, cell): [row for row in answered if row["seed"] == seed and row["cell"] == cell]
        for seed in seeds
        for cell in CELLS
    }

    def ones(cell: Cell, what: str) -> list[float]:
        return [mean([row[what] for row in cells[seed, cell]]) for seed in seeds]

    def counts(cell: Cell) -> list[int]:
        return [len(cells[seed, cell]) for seed in seeds]

    def accuracy(what: str) -> FeatureAccuracy:
        return feature_accuracy(ones("1_0", what), ones("0_1", what), counts("1_0"), counts("0_1"))

    agreement = [one if cell == "1_1" else 1 - one for cell in AGREEING for one in ones(cell, "predicted")]
    return Result(
        how=rows[0]["how"],
        accuracy=accuracy("predicted"),
        uncalibrated=accuracy("uncalibrated"),
        agreement=mean(agreement),
        n={cell: round(mean(counts(cell))) for cell in CELLS},
        failures=Counter(row["failure"] for row in rows if "failure" in row),
    )


def mean(values: Sequence[float]) -> float:
    """NaN of nothing."""
    return fmean(values) if values else math.nan


def by_way(found: Mapping[Key, Result]) -> dict[tuple[str, str, str], list[Result]]:
    """Results of all tasks by model, intervention and steer."""
    ways: dict[tuple[str, str, str], list[Result]] = {}
    for key, result in found.items():
        ways.setdefault((key.model, key.intervention, key.steer), []).append(result)
    return ways


def ways_of(found: Mapping[Key, Result]) -> list[str]:
    """The interventions, in the order in which language models were asked with them."""
    return list(dict.fromkeys(key.intervention for key, result in found.items() if result.how == IN_CONTEXT))


def intended_means(
    found: Mapping[Key, Result], models: Sequence[str]
) -> dict[tuple[str, str], dict[str, float]]:
    """(model, steer) to intervention to the mean over tasks of the intended feature's share; only tasks that
    have every intervention count, so that the means compare like with like."""
    ways = ways_of(found)
    means: dict[tuple[str, str], dict[str, float]] = {}
    for model in models:
        for steer in sorted({key.steer for key in found if key.model == model and key.steer}):
            tasks = dict.fromkeys(key.task for key in found if key.model == model)
            grid = {
                task: [found.get(Key(model, task, way, "" if way == "none" else steer)) for way in ways]
                for task in tasks
            }
            whole = [its for its in grid.values() if all(its)]
            columns = {
                way: mean([result.intended(steer) for its in whole if (result := its[i])])
                for i, way in enumerate(ways)
            }
            means[model, steer] = columns
    return means
