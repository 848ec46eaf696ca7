"""The report of the feature-bias protocol: shares from rows, the paper's tables, and its bar figures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from data_modules.tasks.feature_bias import CELLS, DISAMBIGUATING
from data_modules.tasks.wording import family
from evaluation.answering.yes_no import failure_note, percent
from evaluation.old_report import Report
from evaluation.old_tables import Cell, Table
from evaluation.protocols.feature_bias.figures import learned_figure, steered_figure
from evaluation.protocols.feature_bias.results import (
    IN_CONTEXT,
    Key,
    Result,
    by_way,
    intended_means,
    mean,
    results_of,
    ways_of,
)

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
    notes += cut_note(rows)
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


def cut_note(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A paragraph on prompts that --truncate cut; none where all fitted."""
    asked = Counter(row["model"] for row in rows if "cut" in row)
    cut = Counter(row["model"] for row in rows if row.get("cut"))
    told = "; ".join(f"{name}: {n} of {asked[name]} prompts" for name, n in cut.items())
    return [f"Cut at their beginning, where demonstrations stand (`--truncate`): {told}."] if told else []


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


def learned_table(baseline: Mapping[Key, Result]) -> Table:
    """h1 and h2 of everybody on every task, tasks together."""
    tasks = list(dict.fromkeys(key.task for key in baseline))
    rows = [(key, result) for task in tasks for key, result in baseline.items() if key.task == task]
    cells: list[tuple[Cell, ...]] = [
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
    cells: list[tuple[Cell, ...]] = []
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


def grid_table(found: Mapping[Key, Result], models: Sequence[str], tasks: Sequence[str], steer: str) -> Table:
    """The share that follows the intended feature, by task and intervention."""
    ways = ways_of(found)
    cells: list[tuple[Cell, ...]] = []
    shown: list[Result] = []
    for model in models:
        for task in tasks:
            its = [found.get(Key(model, task, way, "" if way == "none" else steer)) for way in ways]
            if any(its[i] for i, way in enumerate(ways) if way != "none"):
                cells.append((task, model, *(with_spread(result, steer) for result in its)))
                shown += [result for result in its if result]
    header = ("task", "model", *ways)
    title = "the label (h1)" if steer == "h1" else "the other feature (h2)"
    texts = [result.n[cell] for result in shown for cell in DISAMBIGUATING]
    caption = (
        f"{min(texts)} to {max(texts)} texts with an answer in a disambiguating cell; ± is the standard "
        f"deviation over sets of demonstrations (n = {max(result.accuracy.seeds for result in shown)})."
    )
    return Table(f"Steering toward {title}: texts that follow it, in percent", header, tuple(cells), caption)


def with_spread(result: Result | None, steer: str) -> str:
    """The share that follows the intended feature, ± its standard deviation over sets where there are two."""
    if result is None:
        return "–"
    spread = result.accuracy.sd
    return percent(result.intended(steer)) + (f" ± {percent(spread)}" if math.isfinite(spread) else "")


def intended_table(means: Mapping[tuple[str, str], Mapping[str, float]], ways: Sequence[str]) -> Table:
    """The mean over tasks of the intended feature's share, and what each intervention adds."""
    cells: list[tuple[Cell, ...]] = []
    for (model, steer), shares in means.items():
        plain = shares.get("none", math.nan)
        # Zero is not -0.0 for a last bit.
        changes = [round(100 * (share - plain), 9) + 0.0 for share in shares.values()]
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


def uncalibrated_table(found: Mapping[Key, Result]) -> Table:
    """The same shares from the raw probabilities."""
    cells: list[tuple[Cell, ...]] = [
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
