"""What a sweep shows and leaves: a table, study.csv, Optuna's pictures."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import optuna
import pandas as pd
from optuna.exceptions import ExperimentalWarning
from optuna.trial import TrialState, create_trial

from storage.files import write_text
from training.sweep.file import Sweep, distributions
from training.sweep.point import Point

STATES = ("complete", "pruned", "failed", "unfinished")


def counts(points: Sequence[Point]) -> str:
    """`14 complete, 2 failed`."""
    return ", ".join(f"{n} {state}" for state, n in sorted(Counter(p.state for p in points).items()))


def write_table(sweep: Sweep, points: Sequence[Point], path: Path) -> pd.DataFrame:
    """One row for each point, in their order."""
    facts = ("name", "state", "value", "reason", "seconds")
    rows = [{fact: getattr(point, fact) for fact in facts} | point.parameters for point in points]
    table = pd.DataFrame(rows).rename(columns={"name": "trial", "value": sweep.metric})
    write_text(path, table.to_csv(index=False))
    return table


def best_first(sweep: Sweep, table: pd.DataFrame) -> str:
    """A table of points as text: the best one first, those without a value last."""
    value = table[sweep.metric].astype(float) * (-1 if sweep.direction == "maximize" else 1)
    order = pd.DataFrame({"state": table["state"].map(STATES.index), "value": value})
    shown = table.loc[order.sort_values(["state", "value"], kind="stable").index]
    return str(shown.to_string(index=False, na_rep="", float_format="{:.6g}".format))


def write_pictures(sweep: Sweep, points: Sequence[Point], folder: Path) -> None:
    """optimization_history.png, and param_importances.png where parameters and values differ."""
    complete = [point for point in points if point.state == "complete"]
    study = optuna.create_study(direction=sweep.direction)
    for point in complete:
        study.add_trial(
            create_trial(
                state=TrialState.COMPLETE,
                value=point.value,
                params=point.parameters,
                distributions=distributions(sweep.space),
            )
        )
    if complete:
        _draw(study, folder / "optimization_history.png", sweep.metric)
    if len({p.value for p in complete}) > 1 and len({str(p.parameters) for p in complete}) > 1:
        _draw(study, folder / "param_importances.png", sweep.metric)


def _draw(study: optuna.Study, path: Path, metric: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from optuna.visualization import matplotlib as plots

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        axes = getattr(plots, f"plot_{path.stem}")(study, target_name=metric)
    save_figure(axes.figure, path)


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure whole, and close it."""
    import matplotlib.pyplot as plt

    temporary = path.with_name(f".{path.name}")
    figure.savefig(temporary, dpi=150, bbox_inches="tight", format="png")
    temporary.replace(path)
    plt.close(figure)
