"""Compares this project's numbers with the paper's."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from evaluation.report import Evaluation
from evaluation.reproduce.recipe import Printed, Recipe
from evaluation.results import NO_INTERVAL, NUMBERS, Results
from evaluation.shown.views import View

if TYPE_CHECKING:
    from pandas import DataFrame

SELECTION = {"metric": "measure", "mean": "value", "test_set": "data"}
"""Columns of selection.csv, and their names in results.csv."""
NO_DIMENSIONS = {*NUMBERS, "unit", "measure", "std", "values"}


def compare(recipe: Recipe, values: Mapping[str, str], home: Path, *, tiny: bool) -> Evaluation:
    """Compare the results in `home` with the paper's. In the long table, `table` is the title over the
    numbers, and `source` is ours, paper or difference (ours minus the paper's; none with `tiny`). ValueError
    if several of our numbers belong in one place."""
    dimensions = {name for printed in recipe.printed for name in printed.by} - set(recipe.settings)
    results = Results(("table", *sorted(dimensions), "source"), "units of the evaluations")
    views, inside, counted = list[View](), 0, 0
    for printed in recipe.printed:
        title = printed.title or recipe.paper
        by = [name for name in printed.by if name in dimensions]
        ours = our_numbers(home / printed.results, by, printed.measures)
        paper = printed_numbers(recipe, printed, values, tiny=tiny)
        frame = paper.merge(ours, "left" if printed.rows else "right", [*by, "measure"])
        frame = frame.dropna(subset=["ours", "paper"], how="all").fillna({"n": 0})
        frame["difference"] = math.nan if tiny else frame["ours"] - frame["paper"]
        inside += frame["paper"].between(frame["low"], frame["high"]).sum()
        counted += frame[["paper", "low"]].notna().all(axis=1).sum()
        for row in frame.to_dict("records"):
            cell = {name: row[name] for name in by} | {"table": title}
            for source in ("ours", "paper", "difference"):
                if math.isfinite(value := row[source]):
                    interval = (row["low"], row["high"]) if source == "ours" else NO_INTERVAL
                    results.add(row["measure"], value, n=row["n"], interval=interval, **cell, source=source)
        where = {"table": title, "against": list(frame["against"]) if "against" in by else ""}
        headings = {name: name for name in printed.measures}
        percent, caption = (printed.measures, "In percent.") if printed.percent else ((), "")
        views.append(View(title, tuple(by), headings, "source", where, percent, caption=caption))
    headline = f"{inside} of {counted} of the paper's numbers lie within our 95 % intervals."
    if tiny:
        headline = "Tiny models on embedded data: not comparable with the paper, so no differences are shown."
    elif not counted:
        headline = "There is no printed number to compare with our intervals."
    commands = [shlex.join(command) for command in recipe.commands(values, tiny=tiny)]
    about = {"protocol": "reproduce", "tiny": tiny, "values": dict(values), "commands": commands}
    notes = [f"Match with the paper: {recipe.match}. {recipe.notes}"]
    return Evaluation(f"{recipe.title} ({recipe.paper})", results, views, about, headline, notes)


def printed_numbers(recipe: Recipe, printed: Printed, values: Mapping[str, str], *, tiny: bool) -> DataFrame:
    """Return the numbers of the rows selected by the settings, as columns dimensions, measure and paper. If
    the paper prints none for a selected value, use the rows of its own value."""
    import pandas as pd

    columns = [*printed.by, *printed.measures]
    frame = pd.DataFrame(printed.rows).reindex(columns=range(len(columns))).set_axis(columns, axis=1)
    frame[printed.by] = frame[printed.by].astype(str)
    for name in recipe.settings.keys() & set(printed.by):
        has_value = not tiny and values[name] in set(frame[name])
        frame = frame[frame[name] == (values[name] if has_value else recipe.settings[name].paper)]
        frame = frame.drop(columns=name)
    by = [name for name in printed.by if name in frame]
    frame = frame.melt(by, printed.measures, "measure", "paper", ignore_index=False).sort_index(kind="stable")
    return frame.assign(paper=pd.to_numeric(frame["paper"]) / (100 if printed.percent else 1))


def our_numbers(path: Path, by: list[str], measures: list[str]) -> DataFrame:
    """Return the numbers of a long table; of several in one place, that with the fewest other dimensions."""
    import pandas as pd

    frame = pd.read_csv(path, dtype=str, keep_default_na=False).rename(columns=SELECTION)
    frame = frame[frame["measure"].isin(measures)]
    others = [name for name in frame if name not in NO_DIMENSIONS and name not in by]
    filled = (frame[others] != "").sum(axis=1)
    least = filled.groupby([frame[name] for name in [*by, "measure"]]).transform("min")
    frame = frame[filled == least]
    numbers = {name: pd.to_numeric(frame[name]) for name in ("value", "low", "high", "n")}
    return frame.assign(**numbers).rename(columns={"value": "ours"})
