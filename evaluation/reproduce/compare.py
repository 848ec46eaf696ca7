"""Our numbers beside the paper's."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluation.report import Evaluation, source_record
from evaluation.reproduce.recipe import Printed, Recipe, fill
from evaluation.results import ENDS, Results
from evaluation.views import Table, View, cells_of, number, shown

if TYPE_CHECKING:
    from pandas import DataFrame

RENAMED = {"metric": "measure", "mean": "value", "test_set": "data"}
"""Columns of selection.csv, and what results.csv calls them."""
NO_DIMENSIONS = {*ENDS, "measure", "std", "values"}
NOT_FOUND: dict[str, Any] = {"value": math.nan, "low": math.nan, "high": math.nan, "n": 0}


def compare(
    recipe: Recipe, values: Mapping[str, str], home: Path, chosen: Mapping[str, str], *, tiny: bool
) -> Evaluation:
    """Our numbers beside the paper's; `chosen` is what `--use` named. In the long table `source` is ours,
    paper or difference (ours minus the paper's, whose interval is that of ours alone)."""
    dimensions = [name for printed in recipe.printed for name in printed.by if name not in recipe.settings]
    results = Results((*dict.fromkeys(dimensions), "source"), "what the evaluations resample")
    tables, missing = list[Table](), 0
    within = list[bool | None]()  # a printed number in the interval of ours; None: ours has none
    for printed in recipe.printed:
        path, lines = home / printed.results, list[tuple[Any, ...]]()
        frame, view = read_frame(path), View("", (), {}, percent=printed.percent)
        scale = 100 if printed.percent else 1
        for place, numbers in printed_rows(recipe, printed, values, tiny=tiny):
            for measure, printed_value in zip(printed.measures, numbers, strict=True):
                cell = cell_of(frame, place, measure, path)
                if cell is None and printed_value is None:
                    continue
                missing += cell is None
                value, low, high, n = (cell or NOT_FOUND).values()
                paper = math.nan if printed_value is None else float(printed_value) / scale
                results.add(measure, value, n=n, interval=(low, high), **place, source="ours")
                results.add(measure, paper, n=0, **place, source="paper")
                ends = (low - paper, high - paper)
                results.add(measure, value - paper, n=n, interval=ends, **place, source="difference")
                if math.isfinite(value - paper):
                    has_ends = math.isfinite(low) and math.isfinite(high)
                    within.append(low <= paper <= high if has_ends else None)
                gap = difference(value, paper, percent=view.percent is True)
                theirs = number(paper, percent=view.percent is True)
                lines.append((*place.values(), measure, shown(cell or NOT_FOUND, view), theirs, gap, n))
        lead = [name for name in printed.by if name not in recipe.settings]
        header = (*lead, "measure", "ours", "paper", "difference", "n")
        caption = "In percent. " * printed.percent + "Brackets: 95 % interval of ours; n: of ours."
        tables.append(Table(printed.title or recipe.paper, header, tuple(lines), caption, len(lead) + 1))
    headline = conclusion(within) + f" {missing} cells were not found." * bool(missing)
    notes, replaced = [recipe.notes] if recipe.notes else [], replacements(recipe, values, chosen)
    if tiny:
        headline = "Tiny models on embedded data: these numbers are not comparable with the paper's."
    elif replaced:
        headline += f" Not the paper's setting: {', '.join(sorted(replaced))}."
        which = ", ".join(f"{name} (in place of {paper})" for name, paper in sorted(replaced.items()))
        notes.append(f"Not the paper's setting: {which}. The paper's numbers are of its own.")
    about = {
        "protocol": "reproduce",
        "paper": recipe.paper,
        "tiny": tiny,
        "settings": {name: values[name] for name in recipe.settings},
        "data": {name: source_record(values[name]) for name in recipe.data},
        "commands": [shlex.join(command) for command in recipe.commands(values, tiny=tiny)],
    }
    return Evaluation(f"{recipe.title}: {recipe.paper}", results, tables, about, headline, notes)


def conclusion(within: Sequence[bool | None]) -> str:
    """How many printed numbers lie in intervals of ours; None is one of which ours has no interval."""
    without = within.count(None)
    counted = len(within) - without
    if not within:
        return "There is no printed number to compare with."
    if not counted:
        return f"{without} numbers are printed, and ours have no intervals."
    text = f"{within.count(True)} of {counted} printed numbers lie within our 95 % intervals"
    return text + f"; {without} more have none." if without else text + "."


def replacements(recipe: Recipe, values: Mapping[str, str], chosen: Mapping[str, str]) -> dict[str, str]:
    """NAME=VALUE of what was chosen and has no numbers in the paper, with what it replaces there."""
    found = dict[str, str]()
    for name, value in chosen.items():
        if name in recipe.data:
            found[f"{name}={value}"] = recipe.data[name].file
        elif not recipe.settings[name].machine:
            paper = recipe.settings[name].paper
            has_rows = all(value in printed_values(printed, name) for printed in recipe.printed)
            if not has_rows and value != fill(paper, values):
                found[f"{name}={value}"] = paper or "nothing"
    return found


def difference(value: float, paper: float, *, percent: bool = False) -> str:
    """Ours minus theirs, with the digits that the two are shown with.

    >>> difference(0.1801003, 0.1801), difference(0.5, 0.25), difference(7198.0, 7199.0)
    ('0.000', '0.250', '-1')
    """
    texts = [number(x, percent=percent) for x in (value, paper)]
    if not math.isfinite(value - paper) or any("e" in text for text in texts):
        return number(value - paper, percent=percent)
    decimals = max(len(text.partition(".")[2]) for text in texts)
    text = f"{(value - paper) * (100 if percent else 1):.{decimals}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def printed_values(printed: Printed, name: str) -> set[str]:
    """The values of a setting that rows are printed for."""
    return {str(row[printed.by.index(name)]) for row in printed.rows} if name in printed.by else set()


def printed_rows(
    recipe: Recipe, printed: Printed, values: Mapping[str, str], *, tiny: bool
) -> list[tuple[dict[str, Any], list[Any]]]:
    """(place, numbers) of the rows that the settings choose; where the paper prints none for a chosen value,
    those of its own."""
    wanted = {}
    for name in recipe.settings.keys() & {*printed.by}:
        known = not tiny and values[name] in printed_values(printed, name)
        wanted[name] = values[name] if known else recipe.settings[name].paper
    lead, rows = len(printed.by), []
    for row in printed.rows:
        if len(row) != lead + len(printed.measures):
            raise ValueError(f"printed: {row} needs {', '.join((*printed.by, *printed.measures))}")
        place: dict[str, Any] = dict(zip(printed.by, map(str, row), strict=False))
        if wanted == {name: place.pop(name) for name in wanted}:
            rows.append((place, row[lead:]))
    return rows


def read_frame(path: Path) -> DataFrame:
    """A long table; dimensions as texts."""
    import pandas as pd

    if not path.is_file():
        raise ValueError(
            f"{path}: the commands did not write it; does `printed` name the right file? To run "
            "finished steps again, remove steps.jsonl in the folder of the work"
        )
    frame = pd.read_csv(path, dtype=str, keep_default_na=False).rename(columns=RENAMED)
    return frame.assign(**{name: pd.to_numeric(frame[name]) for name in ENDS}).fillna({"n": 0})


def cell_of(frame: DataFrame, place: Mapping[str, str], measure: str, path: Path) -> dict[str, Any] | None:
    """Value, ends and n of the row that a place leads to; None where there is none. ValueError where a place
    leads to several, or names no column."""
    for name in place:
        if name not in frame.columns:
            raise ValueError(f"{path}: has no column {name}; it has {', '.join(frame.columns)}")
    found = cells_of(frame, {**place, "measure": measure})
    free = [name for name in found if name not in {*NO_DIMENSIONS, *place} and found[name].nunique() > 1]
    if len(found) > 1:
        found = cells_of(found, dict.fromkeys(free, ""))
        if len(found) != 1:
            raise ValueError(
                f"{path}: {dict(place)} leads to several numbers called {measure}; "
                f"name one of {', '.join(free)} too"
            )
    return None if found.empty else found[list(ENDS)].astype({"n": int}).to_dict("records")[0]
