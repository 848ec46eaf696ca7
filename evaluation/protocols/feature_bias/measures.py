"""The numbers of the feature-bias protocol, from its rows.

On the disambiguating texts the features differ, so that a prediction follows one of them. Every share is the
mean over (seed, cell) strata, whatever their sizes (the paper's metric), with an interval over texts.

Shape letters: U texts, S strata (a task's set of demonstrations in a cell), C sums, R resamples.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from data_modules.tasks.feature_bias import AGREEING, CELLS, DISAMBIGUATING
from data_modules.tasks.wording import HYPOTHESES, family
from evaluation.failures import answered_rows
from evaluation.results import Results, grouped
from metrics.feature_bias import feature_accuracy
from metrics.intervals import NONE, Interval, bootstrap

BY = ("checkpoint", "how", "family", "task", "intervention", "steer", "seed", "cell")
WAY = ("checkpoint", "how", "intervention", "steer")
FAMILIES = {"nli": "NLI", "sa": "SA", "comments": "TC", "boolq": "QA", "stories": "stories", "": "other"}
Row = Mapping[str, Any]


def long_table(rows: Sequence[Row], names: Sequence[str]) -> Results:
    """All numbers: of each task, means over tasks, and shares of the feature that is meant."""
    results = Results(BY, "texts")
    for cell, members in grouped(rows, (*WAY, "task")):
        add_task(results, cell, members)
    for cell, members in grouped(rows, WAY):
        kinds = dict.fromkeys(family(row["task"]) for row in members)
        for kind in [None, *(kinds if len(kinds) > 1 else [])]:
            its = [row for row in members if kind in (None, family(row["task"]))]
            add_features(results, its, **cell, family="" if kind is None else FAMILIES[kind])
    for name in names:
        add_intended(results, [row for row in rows if row["checkpoint"] == name])
    return results


def add_task(results: Results, cell: Row, rows: Sequence[Row]) -> None:
    """One model on one task in one way."""
    add_features(results, rows, **cell)
    ones: dict[str, list[list[int]]] = {}
    for name, seed in product(CELLS, sorted({row["seed"] for row in rows})):
        members = [row for row in rows if (row["cell"], row["seed"]) == (name, seed) and "failure" not in row]
        its = [row["predicted"] for row in members]
        ones.setdefault(name, []).append(its)
        results.add("ones", mean(its), n=len(its), **cell, seed=seed, cell=name)
    one_10, one_01 = ([mean(its) for its in ones[name]] for name in DISAMBIGUATING)
    n_10, n_01 = ([len(its) for its in ones[name]] for name in DISAMBIGUATING)
    found = feature_accuracy(one_10, one_01, n_10, n_01)
    results.add("h1_sd", found.sd, n=found.seeds, **cell)
    results.add("h1_se", found.se, n=sum(n_10) + sum(n_01), **cell)
    add_share(results, "uncalibrated_h1", stratified(rows, DISAMBIGUATING, "h1", what="uncalibrated"), **cell)
    add_share(results, "agreement", stratified(rows, AGREEING, "h1"), **cell)
    units = ({**row, "text": (row["cell"], row["id"])} for row in answered_rows(rows))
    results.add_means(units, ("failed",), unit="text", by=(), **cell)


def add_features(results: Results, rows: Sequence[Row], **cell: Any) -> None:
    """The shares that follow h1 and h2."""
    for feature in HYPOTHESES:
        add_share(results, feature, stratified(rows, DISAMBIGUATING, feature), **cell)


def add_intended(results: Results, rows: Sequence[Row]) -> None:
    """Of one model: the share that follows the feature that is meant, by task, and its mean with what an
    intervention adds to it. Only tasks with every intervention count there."""
    ways = list(dict.fromkeys(row["intervention"] for row in rows))
    for steer in sorted({row["steer"] for row in rows} - {""}):
        shown = [row for row in rows if row["steer"] in ("", steer)]
        cell = {"checkpoint": rows[0]["checkpoint"], "how": rows[0]["how"], "steer": steer}
        whole = []
        for place, members in grouped(shown, ("task",)):
            by_way = {way["intervention"]: its for way, its in grouped(members, ("intervention",))}
            for way, its in by_way.items():
                share = stratified(its, DISAMBIGUATING, steer)
                add_share(results, "intended", share, **cell, **place, intervention=way)
            whole += members if len(by_way) == len(ways) else []
        for way in ways if whole else ():
            its = [row for row in whole if row["intervention"] == way]
            share = stratified(its, DISAMBIGUATING, steer)
            add_share(results, "intended", share, **cell, intervention=way)
            if way != "none" and "none" in ways:
                its += [row for row in whole if row["intervention"] == "none"]
                gain = stratified(its, DISAMBIGUATING, steer, minus="none")
                add_share(results, "gain", gain, **cell, intervention=way)


class Share(NamedTuple):
    """A mean over strata."""

    value: float
    interval: Interval
    n: int
    """Answers."""


def add_share(results: Results, measure: str, share: Share, **cell: Any) -> None:
    """A row of the long table."""
    results.add(measure, share.value, n=share.n, interval=share.interval, **cell)


def stratified(
    rows: Sequence[Row], cells: Sequence[str], feature: str, *, what: str = "predicted", minus: str = ""
) -> Share:
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
    strata = {(*seed, cell): s for s, (seed, cell) in enumerate(product(seeds, cells))}
    weight_S = np.array(
        [
            (-1 if way == minus else 1) / (tasks[way] * parts[way, task] * len(cells))
            for way, task, _, _ in strata
        ]
    )
    counted = [row for row in rows if row["cell"] in cells and "failure" not in row]
    if not counted:
        return Share(math.nan, NONE, 0)
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
    return Share(float(statistic(sums_UC.sum(0))[0]), bootstrap(sums_UC, statistic), len(counted))


def mean(values: Sequence[float]) -> float:
    """NaN of nothing."""
    return fmean(values) if values else math.nan
