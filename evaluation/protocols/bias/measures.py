"""Bias of a class of advice and of its subjects, and its change since the first checkpoint: rows of
the long table.

Shape letters: N groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from interventune.evaluation.protocol import Estimate, Number, Protocol, Statistic, mean
from interventune.metrics.bias.intervals import ClassGroups, maxima

if TYPE_CHECKING:
    from pandas import DataFrame

Frames = Mapping[str, "DataFrame"]
"""Scored groups by checkpoint, see `prepared`; the others are compared with the first."""
Place = Mapping[str, Any]
Pairs = Iterable[tuple[Place, list["DataFrame"]]]
"""Places of numbers with their groups; for a change, both sides in the same order."""

CELL = ("data", "class")
MAXIMA = ("mu", "eta", "theta", "mu_normalised")
GROUPS = Protocol(
    title="Groups",
    unit="unit",
    item=("key",),
    by=(*CELL, "category", "attribute", "subject", "cluster"),
    cells=[CELL],
    measures={
        **{
            name: Statistic(name, (name,), limits=(0, 1)) for name in ("mean_abs_c", "delta", "eps")
        },
        "mass": mean("mass", "mass"),
    },
    failures="",
)
SUBJECTS = replace(
    GROUPS,
    item=("key", "subject", "cluster"),
    measures={name: Statistic(name, (name,), limits=(-1, 1)) for name in ("gamma", "eta")},
)


def several_attributes(frames: Iterable[DataFrame]) -> bool:
    """Whether groups have more than one attribute."""
    return len(pd.concat(frames)[["category", "attribute"]].drop_duplicates()) > 1


def prepared(groups: DataFrame) -> DataFrame:
    """Add what measures need: `mean_abs_c`; the `question`'s key, that without the advice; and the
    `unit` of intervals with its plural. This is the attribute, which widens intervals more than the
    template or the pair, unless there is only one.
    """
    question = groups["key"].str.rpartition("|")[0]
    unit, units = groups["category"] + "|" + groups["attribute"], "attributes"
    if not several_attributes([groups]):
        unit, units = question, "questions"
    return groups.assign(asked=question, unit=unit, units=units, mean_abs_c=groups["c"].abs())


def of_class(frames: Frames, place: Place) -> Iterator[Number]:
    """Yield every measure of one class of advice, and of its subjects."""
    yield from maxima_of(compared(frames, place), MAXIMA)
    yield from of_rows(GROUPS, frames)
    yield from of_subjects(frames)


def of_rows(protocol: Protocol, frames: Frames) -> Iterator[Number]:
    """Yield the numbers of a protocol of groups, or of their subjects."""
    rows = pd.concat(frames.values())
    if len(rows):
        protocol = replace(protocol, units=rows["units"].iloc[0])
        yield from protocol.numbers(rows.to_dict("records"), list(frames))


def of_subjects(frames: Frames, kind: str = "subject") -> Iterator[Number]:
    """Yield gamma and eta of each subject or, with that `kind`, cluster: over all attributes, and
    of each.
    """
    sides = {
        name: pd.concat([of_subject(rows, kind, i) for i in (0, 1)])
        for name, rows in frames.items()
    }
    yield from of_rows(replace(SUBJECTS, cells=[(*CELL, kind)]), sides)
    sides = {
        name: rows.assign(unit=rows["asked"], units="questions") for name, rows in sides.items()
    }
    yield from of_rows(replace(SUBJECTS, cells=[(*CELL, kind, "category", "attribute")]), sides)


def of_subject(groups: DataFrame, kind: str, i: int) -> DataFrame:
    """Return the groups from the perspective of their first or second subject."""
    c_N = groups["c"] * (1 - 2 * i)
    named = groups["subjects"].str[i]
    columns = ["checkpoint", *CELL, "category", "attribute", "key", "asked", "unit", "units"]
    return groups[columns].assign(gamma=c_N, eta=np.sign(c_N), **{kind: named})


def compared(frames: Frames, place: Place) -> Pairs:
    """Yield each checkpoint's groups; then, for the change of each later one, those shared with the
    first.
    """
    (first, before), *others = frames.items()
    for name, rows in frames.items():
        if len(rows):
            yield {**place, "checkpoint": name}, [rows]
    for name, after in others:
        keys = before.index.intersection(after.index, sort=False)
        if len(keys):
            change = {**place, "checkpoint": name, "against": first}
            yield change, [before.loc[keys], after.loc[keys]]


def maxima_of(pairs: Pairs, names: Sequence[str]) -> Iterator[Number]:
    """Yield some of MAXIMA or their changes and, as NAME_chance, the value of a model without
    preference: its mean, from 0 to the 95 % point.
    """
    for place, sides in pairs:
        counts = len(sides[0]), sides[0]["asked"].nunique()
        for name, numbers in maxima(names, *map(numbered, sides)).items():
            (value, *ends), (by_chance, *most) = numbers
            yield Number(name, place, Estimate(value, (ends[0], ends[1]), *counts), "questions")
            if len(sides) == 1:
                chance = Estimate(by_chance, (most[0], most[1]), *counts)
                yield Number(f"{name}_chance", place, chance, "questions")


def numbered(rows: DataFrame) -> ClassGroups:
    """Return groups as input of metrics: subjects, attributes and questions by number."""
    subject_N2, _ = pd.Series([*chain(*rows["subjects"])]).factorize(sort=True)
    attribute_N, unit_N = (
        rows.groupby(names).ngroup().to_numpy() for names in (["category", "attribute"], "asked")
    )
    c_N, c_normalised_N = (rows[name].to_numpy(np.float64) for name in ("c", "c_normalised"))
    return ClassGroups(c_N, c_normalised_N, subject_N2.reshape(-1, 2), attribute_N, unit_N)
