"""Compares this project's numbers with printed ones."""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from interventune.evaluation.report import Evaluation
from interventune.evaluation.results import NO_INTERVAL, NUMBERS, Estimate, Number, Results
from interventune.evaluation.shown.views import View, cells_of

from .recipe import Printed, Recipe

if TYPE_CHECKING:
    from pandas import DataFrame

SELECTION = {"metric": "measure", "mean": "value", "test_set": "data"}
"""Columns of selection.csv, and their names in results.csv."""
SOURCES = {"paper": "the paper", "authors": "the authors' script", "earlier": "our earlier run"}
"""The names of the sources of printed numbers."""
NO_DIMENSIONS = {*NUMBERS, "unit", "measure", "std", "values"}


def compare(recipe: Recipe, values: Mapping[str, str], home: Path, *, tiny: bool) -> Evaluation:
    """Compare the results in `home` with the printed numbers of the same settings. In the long
    table, `table` is the title over the numbers, and `source` is ours, the recipe's, or difference
    (ours minus theirs). ValueError if several of our numbers belong in one place.
    """
    dimensions = {name for printed in recipe.printed for name in printed.by} - set(recipe.settings)
    results = Results(("table", *sorted(dimensions), "source"), "units of the evaluations")
    theirs, origin = recipe.source, SOURCES[recipe.source]
    changed = recipe.changed(values, tiny=tiny)
    views, hidden, inside, counted = list[View](), list[str](), 0, 0
    for printed in recipe.printed:
        title = printed.title or recipe.paper
        by = [name for name in printed.by if name in dimensions]
        ours = our_numbers(home / printed.results, by, printed.measures)
        numbers = printed_numbers(recipe, printed, values, changed)
        frame = numbers.merge(ours, "left" if printed.rows else "right", [*by, "measure"])
        if printed.rows and numbers[theirs].isna().all():
            hidden.append(title)
        frame["difference"] = frame["ours"] - frame[theirs]
        inside += frame[theirs].between(frame["low"], frame["high"]).sum()
        counted += frame[[theirs, "low"]].notna().all(axis=1).sum()
        for row in frame.fillna({"n": 0}).to_dict("records"):
            place = {name: row[name] for name in by} | {"table": title}
            for source in ("ours", theirs, "difference"):
                if math.isfinite(row[source]):
                    interval = (row["low"], row["high"]) if source == "ours" else NO_INTERVAL
                    estimate = Estimate(row[source], interval, row["n"], row["n"])
                    results.add(Number(row["measure"], place | {"source": source}, estimate))
        where = {"table": title, "against": None if "against" in by else ""}
        headings = {measure: measure for measure in printed.measures}
        percent, caption = (printed.measures, "In percent.") if printed.percent else ((), "")
        views.append(View(title, tuple(by), headings, "source", where, percent, caption=caption))
    headline = f"{inside} of {counted} numbers of {origin} lie within our 95 % intervals."
    if not counted:
        headline = f"There is no number of {origin} to compare with our intervals."
    commands = [shlex.join(command) for command, _ in recipe.commands(values, tiny=tiny)]
    about = {"protocol": "reproduce", "tiny": tiny, "values": dict(values), "commands": commands}
    notes = [f"Match with {origin}: {recipe.match}. {recipe.notes}"]
    if changed:
        note = f"Run with {', '.join(changed.values())}."
        if hidden:
            titles = "; ".join(hidden)
            note += f" Without numbers of {origin}, because it has none for this: {titles}."
        notes.append(note)
    return Evaluation(f"{recipe.title} ({recipe.paper})", results, views, about, headline, notes)


def printed_numbers(
    recipe: Recipe, printed: Printed, values: Mapping[str, str], changed: Collection[str]
) -> DataFrame:
    """Return the numbers of the rows with these settings, as columns dimensions, measure and the
    recipe's source. If none are printed for what changed, they are those of the paper's settings,
    undefined.
    """
    import pandas as pd

    columns = [*printed.by, *printed.measures]
    frame = (
        pd.DataFrame(printed.rows).reindex(columns=range(len(columns))).set_axis(columns, axis=1)
    )
    frame[printed.by] = frame[printed.by].astype(str)
    own = {name: setting.paper for name, setting in recipe.settings.items() if name in printed.by}
    rows = cells_of(frame, {name: values[name] for name in own})
    if rows.empty or set(changed) - set(own):
        rows = cells_of(frame, own).assign(**dict.fromkeys(printed.measures, math.nan))
    by = [name for name in printed.by if name not in own]
    frame = rows.melt(by, printed.measures, "measure", recipe.source, ignore_index=False)
    number = pd.to_numeric(frame[recipe.source]) / (100 if printed.percent else 1)
    return frame.assign(**{recipe.source: number}).sort_index(kind="stable")


def our_numbers(path: Path, by: list[str], measures: list[str]) -> DataFrame:
    """Return the numbers of a long table; of several in one place, that with the fewest other
    dimensions.
    """
    import pandas as pd

    frame = pd.read_csv(path, dtype=str, keep_default_na=False).rename(columns=SELECTION)
    frame = frame[frame["measure"].isin(measures)]
    others = [name for name in frame if name not in NO_DIMENSIONS and name not in by]
    filled = (frame[others] != "").sum(axis=1)
    least = filled.groupby([frame[name] for name in [*by, "measure"]]).transform("min")
    frame = frame[filled == least]
    numbers = {name: pd.to_numeric(frame[name]) for name in ("value", "low", "high", "n")}
    return frame.assign(**numbers).rename(columns={"value": "ours"})
