"""The report of the feature-bias protocol: shares from rows, the paper's tables, and its bar figures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, NamedTuple

from data_modules.feature_bias import AGREEING, CELLS, Cell
from data_modules.feature_wording import family
from evaluation.feature_bias_figures import learned_figure, steered_figure
from evaluation.report import Report
from evaluation.tables import Cell as TableCell
from evaluation.tables import Table
from evaluation.yes_no import failure_note, percent
from metrics.feature_bias import FeatureAccuracy, feature_accuracy

NOTE = (
    "Demonstrations (and training texts) agree with two features: h1, the label, and h2, another one. On the "
    "disambiguating texts the features differ, so every prediction follows one of them: h1 + h2 = 100 %, "
    "and guessing gets 50 %. Each share is the mean over the two disambiguating cells, whatever their sizes, "
    "then over sets of demonstrations or training seeds (the paper's metric). `sd` is over those sets, `se` "
    "the standard error over texts within a set (ours). `agree` is the accuracy where both features agree: "
    "near 50 % a model has learned neither."
)
CALIBRATED = (
    "In-context predictions are calibrated with content-free texts, except explanations (the paper's way); "
    "fine-tuned ones are not."
)
PARITY = (
    "`--parity`: demonstrations, their order and the label words that count are those of the authors' code; "
    "where a pool ends early, fewer demonstrations stand in the prompt, as there."
)
FAMILIES = {"nli": "NLI", "sa": "SA", "comments": "TC", "boolq": "QA", "stories": "stories", "": "other"}
LEARNED, STEERED = "learned.png", "steered.png"
IN_CONTEXT = "in context"


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


def feature_bias_report(
    rows: Sequence[Mapping[str, Any]], models: Sequence[str], tasks: Sequence[str], about: dict[str, Any]
) -> Report:
    """The report of all rows."""
    found = results_of(rows)
    baseline = {key: result for key, result in found.items() if key.intervention == "none"}
    steered = {key: result for key, result in found.items() if key.steer}
    tables = [learned_table(baseline)] if baseline else []
    tables += [means_table(baseline)] if len(tasks) > 1 and baseline else []
    tables += [intended_table(intended_means(found, models), ways_of(found))] if steered else []
    for steer in sorted({key.steer for key in steered}):
        tables.append(grid_table(found, models, tasks, steer))
    if any(result.how == IN_CONTEXT for result in found.values()):
        tables.append(uncalibrated_table(found))
    figures = {}
    if baseline:
        shares = {(key.model, key.task): (r.accuracy.h1, r.accuracy.sd) for key, r in baseline.items()}
        figures[LEARNED] = learned_figure(shares, models, tasks)
    if steered:
        figures[STEERED] = steered_figure(intended_means(found, models), models)
    failures = {name: Counter[str]() for name in models}
    for key, result in found.items():
        failures[key.model] += result.failures
    notes = [NOTE, CALIBRATED, *([PARITY] if about["parity"] else []), *failure_note(failures, "texts")]
    return Report(
        title="Feature bias",
        metrics=dict(metric_keys(found, models)),
        tables=tuple(tables),
        about=about,
        notes=tuple(notes),
        figures=figures,
        examples=rows,
        console=min(len(tables), bool(baseline) + (len(tasks) > 1 and bool(baseline)) + bool(steered)),
    )


def metric_keys(found: Mapping[Key, Result], models: Sequence[str]) -> Iterator[tuple[str, float | int]]:
    """Flat keys; shares in [0, 1]. Means over tasks stand under `mean`."""
    for key, result in found.items():
        at = "/".join([key.model] * (len(models) > 1) + key.parts())
        accuracy = result.accuracy
        yield from ((f"{at}/h1_acc", accuracy.h1), (f"{at}/h2_acc", accuracy.h2))
        yield from ((f"{at}/sd", accuracy.sd), (f"{at}/se", accuracy.se), (f"{at}/seeds", accuracy.seeds))
        yield f"{at}/uncalibrated_h1_acc", result.uncalibrated.h1
        yield f"{at}/agreement", result.agreement
        for cell in CELLS:
            yield f"{at}/n_{cell}", result.n[cell]
        yield f"{at}/failures", result.failures.total()
    if len({key.task for key in found}) > 1:
        for (model, intervention, steer), results in by_way(found).items():
            at = "/".join([model] * (len(models) > 1) + ["mean", intervention] + [steer] * bool(steer))
            yield f"{at}/h1_acc", mean([result.accuracy.h1 for result in results])
            yield f"{at}/h2_acc", mean([result.accuracy.h2 for result in results])
            yield f"{at}/tasks", len(results)


def by_way(found: Mapping[Key, Result]) -> dict[tuple[str, str, str], list[Result]]:
    """Results of all tasks by model, intervention and steer."""
    ways: dict[tuple[str, str, str], list[Result]] = {}
    for key, result in found.items():
        ways.setdefault((key.model, key.intervention, key.steer), []).append(result)
    return ways


def learned_table(baseline: Mapping[Key, Result]) -> Table:
    """h1 and h2 of everybody on every task, tasks together."""
    tasks = list(dict.fromkeys(key.task for key in baseline))
    rows = [(key, result) for task in tasks for key, result in baseline.items() if key.task == task]
    cells: list[tuple[TableCell, ...]] = [
        (
            key.task,
            key.model,
            result.how,
            *(percent(share) for share in (result.accuracy.h1, result.accuracy.h2)),
            *(percent(share) for share in (result.accuracy.sd, result.accuracy.se, result.agreement)),
            result.accuracy.seeds,
            *(result.n[cell] for cell in CELLS[2:]),
            result.failures.total(),
        )
        for key, result in rows
    ]
    header = ("task", "model", "how", "h1", "h2", "sd", "se", "agree", "sets", "n 1_0", "n 0_1", "no answer")
    return Table("Which feature is learned, in percent of disambiguating texts", header, tuple(cells))


def means_table(baseline: Mapping[Key, Result]) -> Table:
    """Means over the tasks of a family, and over all."""
    models = list(dict.fromkeys(key.model for key in baseline))
    kinds = list(dict.fromkeys(family(key.task) for key in baseline))
    cells: list[tuple[TableCell, ...]] = []
    for model in models:
        for kind in [*kinds, None] if len(kinds) > 1 else [None]:
            its = [
                result
                for key, result in baseline.items()
                if key.model == model and (kind is None or family(key.task) == kind)
            ]
            shares = (mean([r.accuracy.h1 for r in its]), mean([r.accuracy.h2 for r in its]))
            name = "all" if kind is None else FAMILIES[kind]
            cells.append((name, model, *(percent(share) for share in shares), len(its)))
    header = ("tasks", "model", "h1", "h2", "files")
    return Table("Means over tasks, each file counted once", header, tuple(cells))


def ways_of(found: Mapping[Key, Result]) -> list[str]:
    """The interventions, in the order in which language models were asked with them."""
    return list(dict.fromkeys(key.intervention for key, result in found.items() if result.how == IN_CONTEXT))


def grid_table(found: Mapping[Key, Result], models: Sequence[str], tasks: Sequence[str], steer: str) -> Table:
    """The share that follows the intended feature, by task and intervention."""
    ways = ways_of(found)
    cells: list[tuple[TableCell, ...]] = []
    for model in models:
        for task in tasks:
            its = [found.get(Key(model, task, way, "" if way == "none" else steer)) for way in ways]
            if any(its[i] for i, way in enumerate(ways) if way != "none"):
                shares = [percent(result.intended(steer)) if result else "–" for result in its]
                cells.append((task, model, *shares))
    header = ("task", "model", *ways)
    title = "the label (h1)" if steer == "h1" else "the other feature (h2)"
    return Table(f"Steering toward {title}: texts that follow it, in percent", header, tuple(cells))


def intended_table(means: Mapping[tuple[str, str], Mapping[str, float]], ways: Sequence[str]) -> Table:
    """The mean over tasks of the intended feature's share, and what each intervention adds."""
    cells: list[tuple[TableCell, ...]] = []
    for (model, steer), shares in means.items():
        plain = shares.get("none", math.nan)
        changes = [100 * (share - plain) for share in shares.values()]
        told = [
            percent(share) + (f" ({change:+.1f})" if way != "none" and math.isfinite(change) else "")
            for (way, share), change in zip(shares.items(), changes, strict=True)
        ]
        cells.append((steer, model, *told))
    caption = (
        "In brackets: points more than without an intervention. Only tasks with every intervention count."
    )
    title = "Means of the share that follows the intended feature, in percent"
    return Table(title, ("toward", "model", *ways), tuple(cells), caption)


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


def uncalibrated_table(found: Mapping[Key, Result]) -> Table:
    """The same shares from the raw probabilities."""
    cells: list[tuple[TableCell, ...]] = [
        (
            key.task,
            key.model,
            f"{key.intervention} {key.steer}".strip(),
            percent(result.accuracy.h1),
            percent(result.uncalibrated.h1),
            percent(result.uncalibrated.h2),
        )
        for key, result in found.items()
        if result.how == IN_CONTEXT and key.intervention != "explanation"
    ]
    header = ("task", "model", "intervention", "h1 as above", "h1 uncalibrated", "h2 uncalibrated")
    return Table("Without calibration, in percent", header, tuple(cells))
