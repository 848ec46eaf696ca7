"""The checkpoints of a run, by step: their numbers, each with its change since the first one, and
those that a report shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .results import Number, Results
from .shown.views import Said, cells_of

if TYPE_CHECKING:
    from pandas import DataFrame

Numbers = Callable[["DataFrame", Sequence[str]], Iterable[Number]]
"""Computes all numbers of a table of rows, given the names of their checkpoints."""


def numbers_along(rows: DataFrame, names: Sequence[str], numbers: Numbers) -> Iterator[Number]:
    """Yield all numbers of each step, then the changes since the first step of each name."""
    rows = rows.fillna({"step": ""})
    parts = dict(iter(rows.groupby("step", sort=False)))
    for step in sorted(parts, key=lambda step: step or 0):
        for number in numbers(parts[step], names):
            yield number._replace(place={**number.place, "step": step})
    for name in names:
        own = rows[rows["checkpoint"] == name]
        step_of = {f"step={step}": step for step in own["step"].unique()}
        own = own.assign(checkpoint=[f"step={step}" for step in own["step"]])
        for number in numbers(own, [*step_of]):
            if number.place.get("against") == next(iter(step_of)):
                place = {"checkpoint": name, "step": step_of[number.place["checkpoint"]]}
                yield number._replace(place={**number.place, **place})


def latest(results: Results, names: Sequence[str]) -> tuple[Results, list[str]]:
    """Return the numbers of the last step of each name and, of a single name, of its first, too;
    each is a checkpoint of its own, such as "ot step 200". The second value is their names.
    """
    frame = results.frame
    all_seeds = frame.groupby("checkpoint")["seeds"].transform("max") == frame["seeds"]
    steps_of = frame[all_seeds].groupby("checkpoint", sort=False)["step"].unique()
    labels = dict[tuple[str, Any], str]()
    for name, steps in steps_of.items():
        for step in steps[[0, -1]] if [name] == [*names] else steps[-1:]:
            labels[name, step] = f"{name} step {step}" if name in names and step != "" else name
    shown = Results([name for name in results.by if name != "step"], results.unit)
    for number in results:
        place = dict(number.place)
        step = place.pop("step")
        name = place["checkpoint"]
        against = place["against"]
        before = None
        if against.startswith("step="):
            before = name, steps_of[name][0]
        elif against in steps_of:
            before = against, step
        if (name, step) in labels and (before is None or before in labels):
            place["checkpoint"] = labels[name, step]
            place["against"] = labels[before] if before else against
            shown.add(number._replace(place=place))
    return shown, [label for (name, _), label in labels.items() if name in names]


def over_steps(
    results: Results, clauses: Iterable[Said], names: Sequence[str], whole: Sequence[str]
) -> DataFrame:
    """Return the cells of a headline's clauses at all steps, with their words as the measure, which
    is in the column `of`; `whole` as for `Said.places`.
    """
    import pandas as pd

    parts = [results.frame[:0].assign(of="")]
    for clause in clauses:
        for words, place in clause.places(results, whole):
            where = {name: [value] for name, value in place.items()}
            where |= {"measure": [clause.measure], "against": [""], "checkpoint": [*names]}
            cells = cells_of(results.frame, where)
            parts.append(cells[cells["step"] != ""].assign(measure=words, of=clause.measure))
    return pd.concat(parts)
