"""The numbers of the feature-bias protocol, from its rows.

On the disambiguating texts the features differ, so that a prediction follows one of them. Every share is the
mean over (seed, cell) strata, whatever their sizes (the paper's metric), with an interval over texts.

Shape letters: U texts, S strata (a task's set of demonstrations in a cell), C sums, R resamples.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from statistics import fmean
from typing import Any

import numpy as np

from data_modules.tasks.feature_bias import agreeing_cells, differing_cells
from data_modules.tasks.wording import HYPOTHESES, family, feature_of
from evaluation.conclusions import answered_rows
from evaluation.results import Results, grouped
from metrics.feature_bias import feature_accuracy
from metrics.intervals import NONE, Interval, bootstrap

BY = ("checkpoint", "how", "family", "feature", "task", "intervention", "steer", "seed", "cell")
SETTING = ("checkpoint", "how", "intervention", "steer")
FAMILIES = {"nli": "NLI", "sa": "SA", "comments": "TC", "boolq": "QA", "stories": "stories", "": "other"}
UNSTEERED = {"h1": "sa"}
"""The family that the paper's means of steering toward a feature leave out: its sentiment tasks have no label
words for h1, so that 16 of the 22 files are behind the h1 column of Table 2."""
Row = Mapping[str, Any]
Cells = Callable[[int], Sequence[str]]
"""Of a task with so many classes, those that count."""


def long_table(rows: Sequence[Row], names: Sequence[str]) -> Results:
    """All numbers: of each task, means over tasks, and shares of the feature that is meant."""
    results = Results(BY, "texts")
    for cell, members in grouped(rows, (*SETTING, "task")):
        add_task(results, cell, members)
    for cell, members in grouped(rows, SETTING):
        for place, chosen in parts_of(members):
            for feature in HYPOTHESES:
                add_share(results, feature, stratified(chosen, differing_cells, feature), **cell, **place)
    for name in names:
        add_intended(results, [row for row in rows if row["checkpoint"] == name])
    return results


def parts_of(rows: Sequence[Row]) -> Iterator[tuple[dict[str, str], list[Row]]]:
    """All rows; those of each family of tasks, where there are several or they are the paper's; and those of
    each feature of the paper's tasks (of its Tables 4 and 5 the rows; some have two files)."""
    yield {}, list(rows)
    by_kind = [
        ({"family": FAMILIES[kind["family"]]}, members) for kind, members in grouped(named(rows), ("family",))
    ]
    for place, members in by_kind:
        features = [part for part in grouped(members, ("feature",)) if part[0]["feature"]]
        if len(by_kind) > 1 or features:
            yield place, members
        yield from (({**place, **feature}, chosen) for feature, chosen in features)


def named(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """The rows with the family and the feature that the names of their tasks tell."""
    for row in rows:
        yield {**row, "family": family(row["task"]), "feature": feature_of(row["task"])}


def classes_of(rows: Iterable[Row]) -> dict[str, int]:
    """How many classes each task has."""
    found: dict[str, int] = {}
    for row in rows:
        greatest = max(int(part) for part in row["cell"].split("_"))
        found[row["task"]] = max(found.get(row["task"], 2), greatest + 1)
    return found


def add_task(results: Results, cell: Row, rows: Sequence[Row]) -> None:
    """One model on one task in one way."""
    for feature in HYPOTHESES:
        add_share(results, feature, stratified(rows, differing_cells, feature), **cell)
    (classes,) = classes_of(rows).values()
    differing = differing_cells(classes)
    followed: dict[str, list[float]] = {}
    counts: dict[str, list[int]] = {}
    for name, seed in product((*agreeing_cells(classes), *differing), sorted({row["seed"] for row in rows})):
        members = [row for row in rows if (row["cell"], row["seed"]) == (name, seed) and "failure" not in row]
        place = {**cell, "seed": seed, "cell": name}
        share = fmean(row["predicted"] == row["h1"] for row in members) if members else math.nan
        if classes == 2:
            results.add("ones", share if name[0] == "1" else 1 - share, n=len(members), **place)
        else:
            results.add("follows_h1", share, n=len(members), **place)
        followed.setdefault(name, []).append(share)
        counts.setdefault(name, []).append(len(members))
    found = feature_accuracy([followed[name] for name in differing], [counts[name] for name in differing])
    results.add("h1_sd", found.sd, n=found.seeds, **cell)
    results.add("h1_se", found.se, n=sum(sum(counts[name]) for name in differing), **cell)
    plain = stratified(rows, differing_cells, "h1", what="uncalibrated")
    add_share(results, "uncalibrated_h1", plain, **cell)
    add_share(results, "agreement", stratified(rows, agreeing_cells, "h1"), **cell)
    units = ({**row, "text": (row["cell"], row["id"])} for row in answered_rows(rows))
    results.add_means(units, ("failed",), unit="text", by=(), **cell)


def add_intended(results: Results, rows: Sequence[Row]) -> None:
    """Of one model: the share that follows the feature that is meant, by task, and its mean with what an
    intervention adds to it: over all, by family and by feature. Only tasks with every intervention count
    there, and toward h1 no sentiment task where there are others."""
    ways = list(dict.fromkeys(row["intervention"] for row in rows))
    for steer in sorted({row["steer"] for row in rows} - {""}):
        shown = [row for row in rows if row["steer"] in ("", steer)]
        cell = {"checkpoint": rows[0]["checkpoint"], "how": rows[0]["how"], "steer": steer}
        whole: list[dict[str, Any]] = []
        for place, members in grouped(shown, ("task",)):
            by_way = {way["intervention"]: chosen for way, chosen in grouped(members, ("intervention",))}
            for way, chosen in by_way.items():
                share = stratified(chosen, differing_cells, steer)
                add_share(results, "intended", share, **cell, **place, intervention=way)
            whole += members if len(by_way) == len(ways) else []
        steerable = [row for row in whole if family(row["task"]) != UNSTEERED.get(steer)]
        for place, part in parts_of(steerable or whole):
            baseline = [row for row in part if row["intervention"] == "none"]
            for way, members in grouped(part, ("intervention",)):
                share = stratified(members, differing_cells, steer)
                add_share(results, "intended", share, **cell, **place, **way)
                if baseline and way["intervention"] != "none":
                    gain = stratified([*members, *baseline], differing_cells, steer, minus="none")
                    add_share(results, "gain", gain, **cell, **place, **way)


def add_share(results: Results, measure: str, share: tuple[float, Interval, int], **cell: Any) -> None:
    """A row of the long table."""
    value, interval, n = share
    results.add(measure, value, n=n, interval=interval, **cell)


def stratified(
    rows: Sequence[Row], cells: Cells, feature: str, *, what: str = "predicted", minus: str = ""
) -> tuple[float, Interval, int]:
    """How often predictions follow a feature: the mean over tasks, over seeds and cells of each, whatever
    their sizes; with its interval over texts and the number of answers. NaN where a stratum has none.

    Args:
        rows: with and without an answer.
        cells: which count.
        feature: h1 or h2.
        what: the field with the prediction.
        minus: an intervention whose share is subtracted from the other's.
    """
    seeds = dict.fromkeys((row["intervention"], row["task"], row["seed"]) for row in rows)
    parts = Counter((intervention, task) for intervention, task, _ in seeds)
    tasks = Counter(intervention for intervention, _ in parts)
    cells_of = {task: cells(classes) for task, classes in classes_of(rows).items()}
    every = ((*seed, cell) for seed in seeds for cell in cells_of[seed[1]])
    strata = {stratum: s for s, stratum in enumerate(every)}
    weight_S = np.array(
        [
            (-1 if way == minus else 1) / (tasks[way] * parts[way, task] * len(cells_of[task]))
            for way, task, _, _ in strata
        ]
    )
    counted = [row for row in rows if row["cell"] in cells_of[row["task"]] and "failure" not in row]
    if not counted:
        return math.nan, NONE, 0
    units: dict[tuple[str, str, str], int] = {}
    at = [units.setdefault((row["task"], row["cell"], row["id"]), len(units)) for row in counted]
    sums_US2 = np.zeros((len(units), len(strata), 2))
    for u, row in zip(at, counted, strict=True):
        s = strata[row["intervention"], row["task"], row["seed"], row["cell"]]
        sums_US2[u, s] += (row[what] == row[feature], 1)

    def statistic(total_RC: np.ndarray) -> np.ndarray:
        total_RS2 = total_RC.reshape(-1, len(strata), 2)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(total_RS2[..., 0] / total_RS2[..., 1] @ weight_S)

    sums_UC = sums_US2.reshape(len(units), -1)
    return float(statistic(sums_UC.sum(0))[0]), bootstrap(sums_UC, statistic), len(counted)
