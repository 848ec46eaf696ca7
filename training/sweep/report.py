"""What a sweep shows and leaves: one line a trial, a table, study.csv, Optuna's pictures."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.trial import FrozenTrial, TrialState
from rich.console import Console
from rich.table import Table

from storage.json_files import atomic_text
from training.sweep.file import Scalar, flag_text
from training.sweep.queue import ERROR, POINT, current_trials

WORDS = {TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed"}


def progress_line(trial: FrozenTrial, metric: str) -> str:
    """Number, state, value or reason, parameters, seconds."""
    result = f"{metric} {trial.value:.4g}" if trial.value is not None else trial.user_attrs.get(ERROR, "")
    parts = [name(trial), word(trial), result, parameters_text(trial.params), f"{seconds(trial):.0f} s"]
    return "  ".join(part for part in parts if part)


def name(trial: FrozenTrial) -> str:
    """The name of the trial's folder."""
    return f"trial_{trial.user_attrs[POINT]:04d}"


def word(trial: FrozenTrial) -> str:
    """The state of a trial."""
    return WORDS.get(trial.state, trial.state.name.lower())


def parameters_text(parameters: Mapping[str, Scalar]) -> str:
    """`key=value key=value`."""
    return " ".join(f"{key}={flag_text(value)}" for key, value in parameters.items())


def seconds(trial: FrozenTrial) -> float:
    """How long the last attempt took."""
    return trial.duration.total_seconds() if trial.duration else 0.0


def best_first(study: optuna.Study) -> list[FrozenTrial]:
    """The trials that count: the best one first, those without a value last, by point where values are
    equal."""
    sign = -1.0 if study.direction == optuna.study.StudyDirection.MAXIMIZE else 1.0
    order = [TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL, TrialState.RUNNING, TrialState.WAITING]
    trials = current_trials(study.get_trials(deepcopy=False))
    return sorted(trials, key=lambda t: (order.index(t.state), sign * (t.value or 0.0), t.user_attrs[POINT]))


def counts(trials: Sequence[FrozenTrial]) -> str:
    """`14 complete, 2 failed`."""
    return ", ".join(f"{n} {state}" for state, n in sorted(Counter(map(word, trials)).items()))


def print_table(study: optuna.Study, metric: str, keys: Sequence[str]) -> None:
    """All trials, the best one first."""
    trials = best_first(study)
    table = Table(title=f"{study.study_name}: {counts(trials)}", title_justify="left")
    for column in ("trial", "state", metric, *keys, "seconds"):
        table.add_column(column, overflow="fold")
    for trial in trials:
        value = f"{trial.value:.6g}" if trial.value is not None else trial.user_attrs.get(ERROR, "")
        row = [flag_text(trial.params[key]) if key in trial.params else "" for key in keys]
        table.add_row(name(trial), word(trial), value, *row, f"{seconds(trial):.0f}")
    console = Console()
    # In a file or a pipe nobody wants lines cut at 80 characters.
    Console(width=None if console.is_terminal else 200).print(table)


def write_csv(study: optuna.Study, path: Path) -> None:
    """Optuna's table of the trials that count, numbered like their folders."""
    trials = current_trials(study.get_trials(deepcopy=False))
    rows = study.trials_dataframe()
    rows = rows[rows["number"].isin([trial.number for trial in trials])]
    rows = rows.assign(number=rows[f"user_attrs_{POINT}"]).sort_values("number")
    with atomic_text(path) as file:
        file.write(rows.to_csv(index=False))


def write_pictures(study: optuna.Study, folder: Path, metric: str) -> None:
    """optimization_history.png, and param_importances.png where there are any; says what is left out and
    why."""
    complete = [t for t in current_trials(study.get_trials(deepcopy=False)) if t.state == TrialState.COMPLETE]
    if not complete:
        print("no pictures: no trial is complete")
        return
    _picture(study, folder / "optimization_history.png", metric)
    varied = {
        key for trial in complete for key in trial.params if trial.params[key] != complete[0].params.get(key)
    }
    if not varied or len({trial.value for trial in complete}) < 2:
        print(
            "no param_importances.png: it needs complete trials of different parameters and different values"
        )
        return
    _picture(study, folder / "param_importances.png", metric)


def _picture(study: optuna.Study, path: Path, metric: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from optuna.visualization import matplotlib as plots

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        draw = getattr(plots, f"plot_{path.stem}")
        axes = draw(study, target_name=metric)
        temporary = path.with_name(f".{path.name}")
        axes.figure.savefig(temporary, dpi=150, bbox_inches="tight", format="png")
        temporary.replace(path)
    plt.close(axes.figure)
