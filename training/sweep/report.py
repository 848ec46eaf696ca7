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
from rich.console import Console
from rich.table import Table

from storage.json_files import write_text
from training.sweep.file import Sweep, distributions, flag_text
from training.sweep.point import Point

STATES = ("complete", "pruned", "failed", "unfinished")


def best_first(points: Sequence[Point], direction: str) -> list[Point]:
    """The best point first, those without a value last; by number where values are equal."""
    sign = -1.0 if direction == "maximize" else 1.0
    return sorted(points, key=lambda p: (STATES.index(p.state), sign * (p.value or 0.0), p.name))


def counts(points: Sequence[Point]) -> str:
    """`14 complete, 2 failed`."""
    return ", ".join(f"{n} {state}" for state, n in sorted(Counter(p.state for p in points).items()))


def print_table(sweep: Sweep, points: Sequence[Point]) -> None:
    """All points, the best one first."""
    table = Table(title=f"{sweep.study}: {counts(points)}", title_justify="left")
    for column in ("trial", "state", sweep.metric, *sweep.space, "seconds"):
        table.add_column(column, overflow="fold")
    for point in best_first(points, sweep.direction):
        value = f"{point.value:.6g}" if point.value is not None else point.reason
        row = [flag_text(point.parameters[key]) if key in point.parameters else "" for key in sweep.space]
        table.add_row(point.name, point.state, value, *row, f"{point.seconds:.0f}")
    print_wide(table)


def print_wide(table: Table) -> None:
    """Print a table; in a file or a pipe nobody wants lines cut at 80 characters."""
    Console(width=None if Console().is_terminal else 200).print(table)


def write_csv(points: Sequence[Point], path: Path) -> None:
    """One row for each point, in their order."""
    rows = [
        {"trial": p.name, "state": p.state, "value": p.value, "reason": p.reason, "seconds": p.seconds}
        | p.parameters
        for p in points
    ]
    write_text(path, pd.DataFrame(rows).to_csv(index=False))


def write_pictures(sweep: Sweep, points: Sequence[Point], folder: Path) -> None:
    """optimization_history.png, and param_importances.png where there are any; says what is left out."""
    complete = [point for point in points if point.state == "complete"]
    if not complete:
        print("no pictures: no trial is complete")
        return
    study = optuna.create_study(direction=sweep.direction)
    for point in complete:
        trial = create_trial(
            state=TrialState.COMPLETE,
            value=point.value,
            params=point.parameters,
            distributions=distributions(sweep.space),
        )
        study.add_trial(trial)
    _picture(study, folder / "optimization_history.png", sweep.metric)
    if len({p.value for p in complete}) > 1 and len({str(p.parameters) for p in complete}) > 1:
        _picture(study, folder / "param_importances.png", sweep.metric)
    else:
        print(
            "no param_importances.png: it needs complete trials of different parameters and different values"
        )


def _picture(study: optuna.Study, path: Path, metric: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from optuna.visualization import matplotlib as plots

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        axes = getattr(plots, f"plot_{path.stem}")(study, target_name=metric)
    save_figure(axes.figure, path)
    plt.close(axes.figure)


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure whole."""
    temporary = path.with_name(f".{path.name}")
    figure.savefig(temporary, dpi=150, bbox_inches="tight", format="png")
    temporary.replace(path)
