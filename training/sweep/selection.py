"""The best models of a sweep, tested: mean and standard deviation over the first K by a metric of their own.

    python -m training select --study runs/sweeps/lei_grid --metric val/bias/selection --top 5 \\
        --test religion=FILE ethnicity=FILE gender=FILE squad=hub:rajpurkar/squad:validation

So Zhao et al. (2021, appendix B.3) report: a grid of epochs and learning rates, the five best on the
development set, mean and deviation on every test set. `--by data.limit_train_groups` does it for each value
of a swept key and draws the curve (their Figure 5). What was tested once is not tested again. Other
--key=value flags go to `python -m training test`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from training.sweep.file import Scalar, flag_text
from training.sweep.queue import DATABASE, FOLDER, POINT, current_trials, open_storage
from training.sweep.report import name, parameters_text
from training.sweep.selection_report import (
    Model,
    Selection,
    draw_figure,
    is_size,
    print_selection,
    write_selection,
)
from training.sweep.selection_tests import TEST, TestSet, parse_tests, results_of
from training.sweep.worker import RUN, TRIALS, final_value

Mode = Literal["min", "max"]


def main(argv: Sequence[str], command: Sequence[str] = TEST) -> int:
    """The command; a user's mistake is one line on stderr and exit code 2."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    args, flags = make_parser().parse_known_args(argv)
    try:
        for flag in flags:
            if not (flag.startswith("--") and "=" in flag):
                raise ValueError(f"{flag}: is no flag of this command; write others as --key=value")
        select(args, flags, command)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def make_parser() -> argparse.ArgumentParser:
    """The flags of the command itself."""
    parser = argparse.ArgumentParser(
        prog="python -m training select",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--study", required=True, help="folder of a study, or the address of its storage")
    parser.add_argument("--study-name", default="", help="where the storage holds several")
    parser.add_argument("--metric", required=True, help="key of the trials' metrics.json")
    parser.add_argument("--mode", choices=("min", "max"), help="what is better (default: as in the sweep)")
    parser.add_argument("--top", type=int, default=5, help="how many models (default: 5)")
    parser.add_argument("--test", nargs="+", required=True, metavar="[NAME=]SOURCE", help="sets to test on")
    parser.add_argument("--by", default="", metavar="KEY", help="a swept key: do it for each of its values")
    parser.add_argument(
        "--checkpoint",
        choices=("last", "best"),
        default="last",
        help="last (default), which metrics.json describes, or best by checkpoint.monitor",
    )
    parser.add_argument("--output", type=Path, help="a folder (default: STUDY/selection)")
    return parser


def select(args: argparse.Namespace, flags: Sequence[str], command: Sequence[str] = TEST) -> list[Selection]:
    """Rank, test, show, write.

    Raises:
        ValueError: the study, the metric, the key or a test set is not there.
    """
    if args.top < 1:
        raise ValueError(f"--top must be at least 1, got {args.top}")
    home = Path(args.study) if Path(args.study).is_dir() else None
    if home is None and args.output is None:
        raise ValueError("--output: is needed where --study is an address")
    tests = parse_tests(args.test)
    study = open_study(args.study, args.study_name)
    mode = args.mode or known_mode(study, args.metric)
    chosen = [
        (value, ranked(trials, args.metric, mode, home)[: args.top])
        for value, trials in split(complete_trials(study), args.by)
    ]
    selections = []
    for value, models in chosen:
        about = f" of {args.by}={flag_text(value)}" if args.by else ""
        if len(models) < args.top:
            print(f"only {len(models)} complete trials{about}; {args.top} were asked for")
        selections.append(tested(value, models, tests, args.checkpoint, flags, command))
    if any(len(selection.models) < 2 for selection in selections):
        print("no standard deviation over fewer than 2 models")
    keep(study, selections, tests, args, mode, args.output or Path(args.study) / "selection")
    return selections


def keep(
    study: optuna.Study,
    selections: list[Selection],
    tests: list[TestSet],
    args: argparse.Namespace,
    mode: Mode,
    output: Path,
) -> None:
    """Show the table and write the folder."""
    about: dict[str, Any] = {"study": study.study_name, "metric": args.metric, "mode": mode, "top": args.top}
    about |= {"by": args.by, "checkpoint": args.checkpoint}
    print_selection(selections, tests, args.by)
    output.mkdir(parents=True, exist_ok=True)
    write_selection(output, selections, tests, about)
    if args.by:
        draw_figure(output / "selection.png", selections, tests, args.by)
    print(output)


def open_study(where: str, study_name: str) -> optuna.Study:
    """The study of a folder or a storage. ValueError when there is none, or when there are several."""
    address = where
    if "://" not in where:
        database = Path(where) / DATABASE
        if not database.is_file():
            raise ValueError(
                f"--study {where}: has no {DATABASE}; name the folder of a sweep, or, for one with "
                "--storage, that address and --study-name"
            )
        address = f"sqlite:///{database.absolute()}"
    storage = open_storage(address, 30, flag="--study")
    names = sorted(optuna.get_all_study_names(storage))
    if not study_name and len(names) != 1:
        raise ValueError(f"--study-name: say which of {', '.join(names) or 'none'}")
    if study_name and study_name not in names:
        raise ValueError(f"--study-name {study_name}: there is {', '.join(names) or 'none'}")
    return optuna.load_study(study_name=study_name or names[0], storage=storage)


def known_mode(study: optuna.Study, metric: str) -> Mode:
    """What is better, as the sweep has it. ValueError for a metric that it does not know."""
    swept = study.user_attrs.get("sweep", {}).get("metric")
    if metric != swept:
        raise ValueError(f"--mode: say whether the lowest (min) or highest (max) {metric} is best")
    return "min" if study.direction == StudyDirection.MINIMIZE else "max"


def complete_trials(study: optuna.Study) -> list[FrozenTrial]:
    """The trials that have a result. ValueError when there are none."""
    trials = [t for t in current_trials(study.get_trials(deepcopy=False)) if t.state == TrialState.COMPLETE]
    if not trials:
        raise ValueError(f"--study: {study.study_name} has no complete trial")
    return trials


def split(trials: Sequence[FrozenTrial], by: str) -> list[tuple[Scalar, list[FrozenTrial]]]:
    """The trials of each value of a swept key, in the order of the values. ValueError for a key not swept."""
    if not by:
        return [(None, list(trials))]
    found: dict[Scalar, list[FrozenTrial]] = {}
    for trial in trials:
        if by not in trial.params:
            raise ValueError(f"--by {by}: is not swept; the keys are {', '.join(trial.params)}")
        found.setdefault(trial.params[by], []).append(trial)
    if all(map(is_size, found)):
        return sorted(found.items(), key=lambda pair: float(pair[0] or 0))
    return list(found.items())


def ranked(trials: Sequence[FrozenTrial], metric: str, mode: Mode, home: Path | None) -> list[Model]:
    """The best one first; where values are equal, the earlier trial first.

    Args:
        trials: complete ones.
        metric: key of their metrics.json.
        mode: what is better.
        home: folder of the study, if it is at hand; it may have been moved since.
    """
    models = []
    for trial in sorted(trials, key=lambda trial: int(trial.user_attrs[POINT])):
        run = run_folder(trial, home)
        score = final_value(run / "metrics.json", metric)
        models.append(Model(name(trial), score, dict(trial.params), str(run)))
    return sorted(models, key=lambda model: model.score if mode == "min" else -model.score)


def run_folder(trial: FrozenTrial, home: Path | None) -> Path:
    """Where a trial left its run."""
    here = home / TRIALS / name(trial) / RUN if home else None
    return here if here and here.exists() else Path(trial.user_attrs[FOLDER])


def tested(
    value: Scalar,
    models: list[Model],
    tests: Sequence[TestSet],
    checkpoint: str,
    flags: Sequence[str],
    command: Sequence[str],
) -> Selection:
    """Test one model after another, with a line for each."""
    results: dict[str, list[dict[str, float]]] = {test.name: [] for test in tests}
    for model in models:
        print(f"{model.name}  {model.score:.6g}  {parameters_text(model.parameters)}", flush=True)
        found = results_of(Path(model.run), checkpoint, tests, flags, command)
        for test_name, metrics in found.items():
            results[test_name].append(metrics)
    return Selection(value, models, results)
