"""Bias of a class of advice and of its subjects, and its change since the first checkpoint: rows of the long
table.

Shape letters: N groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch

from evaluation.results import NO_INTERVAL, Results
from evaluation.statistics import Statistic, estimate, share
from metrics.bias.group_scores import score_groups
from metrics.bias.intervals import ClassGroups, estimate_bias

if TYPE_CHECKING:
    from pandas import DataFrame

Frames = Mapping[str, "DataFrame"]
"""Scored groups by checkpoint, each with its `unit`; the others are compared with the first."""
Place = Mapping[str, Any]
Found = Iterable[tuple[Place, list["DataFrame"]]]
"""Places of numbers with their groups; for a change, both sides in the same order."""

OF_CLASSES = ["mu_K", "eta_K", "theta_K", "mean_abs_c_K", "mass_K", "delta_K", "eps_K", "mu_normalised_K"]
OF_SUBJECTS = ("gamma_KX", "eta_KX", "gamma_KXA", "eta_KXA")


def add_bias(results: Results, frames: Frames, place: Place) -> None:
    """Add every measure of one class of advice, and of its subjects."""
    add_estimates(results, compared(frames, place), (*OF_CLASSES, *OF_SUBJECTS))
    for measure in ("accuracy", "unknown"):
        add_statistic(results, compared(frames, place), measure, share(measure, measure))


def compared(frames: Frames, place: Place) -> Found:
    """Yield each checkpoint's groups; then, for the change of each later one, those shared with the first."""
    (first, before), *others = frames.items()
    for name, rows in frames.items():
        if len(rows):
            yield {**place, "checkpoint": name}, [rows]
    for name, after in others:
        keys = before.index.intersection(after.index, sort=False)
        if len(keys):
            yield {**place, "checkpoint": name, "against": first}, [before.loc[keys], after.loc[keys]]


def add_statistic(results: Results, found: Found, measure: str, statistic: Statistic) -> None:
    """Add a statistic of each checkpoint's rows, and its change since the first."""
    for at, sides in found:
        number = estimate(statistic, *reversed(sides))
        if number.n:
            results.add(measure, **number._asdict(), **at)


def add_estimates(results: Results, found: Found, fields: Sequence[str], kind: str = "subject") -> None:
    """Add fields of `BiasResult`, for each subject and attribute if they have such axes; for two sides their
    change, except by attribute. Subjects are of a kind: `subject` or `cluster`. A single unit has no
    interval."""
    for at, sides in found:
        wanted = [field for field in fields if len(sides) == 1 or not field.endswith("A")]
        numbers = [numbered(rows) for rows in sides]
        _, subjects, attributes = numbers[0]
        bias = estimate_bias(wanted, *(groups for groups, *_ in numbers))
        results.resamples = min(filter(None, (results.resamples, bias.resamples)), default=None)
        units = sides[0]["unit"].nunique()
        for field in wanted:
            measure, _, axes = field.rpartition("_")
            (counts,) = getattr(bias.counts, f"n_{axes}")
            for cell in map(tuple, counts.nonzero().tolist()):
                (value, low, high), n = bias.numbers[field][:, *cell], int(counts[cell])
                interval = (low, high) if high - low > 1e-12 else NO_INTERVAL  # none for identical resamples
                where = {**at}
                if cell:
                    where[kind] = subjects[cell[0]]
                if len(cell) > 1:
                    where["category"], where["attribute"] = attributes[cell[1]]
                results.add(measure, value, n=n, units=min(n, units), interval=interval, **where)


def numbered(rows: DataFrame) -> tuple[ClassGroups, Any, Any]:
    """Return groups as input of metrics; subjects, and attributes as (category, attribute), by number."""
    subject_N2, subjects = pd.Series([*chain(*rows["subjects"])]).factorize(sort=True)
    pairs = [*zip(rows["category"], rows["attribute"], strict=True)]
    attribute_N, attributes = pd.Series(pairs).factorize(sort=True)
    scores = score_groups(torch.tensor(rows["scores"].tolist(), dtype=torch.float64))
    sizes = len(subjects), len(attributes)
    unit_N, _ = rows["unit"].factorize()
    groups = ClassGroups(scores, subject_N2.reshape(-1, 2), attribute_N, *sizes, unit_N)
    return groups, subjects, attributes
