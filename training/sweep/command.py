"""Many runs of `fit`, over the values that a file names, on one machine, a SLURM array or a Ray cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args

import optuna
import pandas as pd
import sqlalchemy
import yaml
from filelock import FileLock

from data_modules.sources import read_groups
from storage.command_line import AtLeast, Count, Parser, call, make_parser
from storage.files import write_text
from storage.json_files import load_json
from training.configs import shipped
from training.sweep.engines import run_locally, run_on_ray, share_out, sigterm_as_interrupt
from training.sweep.file import Sweep, read_sweep
from training.sweep.guard import LOCK, LOG
from training.sweep.point import (
    DESCRIPTION,
    RUN,
    TRIALS,
    Point,
    State,
    Study,
    log_tail,
    own_environment,
    run_point,
)
from training.sweep.results import open_study, write_pictures

SIZES = "data.limit_train_groups"
INTERRUPTED = 130
"""Exit code after Ctrl-C."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Many runs of `fit`, over the values that a file names.

        interventune sweep configs/sweeps/demo_grid.yaml --workers 2 [--key=value for every trial ...]
        interventune sweep FILE --point N         one trial: for job arrays
        (configs/launch/sweep.sbatch) interventune sweep FILE --ray ADDRESS     each trial a task of a
        Ray cluster

    The same command goes on with a study that was interrupted, joins one that others work on, and shows one
    that has ended. Every trial is the ordinary `fit` command in a folder of its own, STUDY/trials/trial_NNNN,
    with log.txt beside its run. A trial whose worker died goes on from its last checkpoint; one that fails is
    kept with the end of its log (remove its exit_code to run it again). `-c FILE` adds a configuration, such
    as another backbone.

    Args:
        workers: trials at the same time on this machine
        gpus_per_trial: GPUs of its own for every trial
        over: other values of a swept key, or another key to sweep over, as model.learning_rate=[1e-4,3e-4]
        point: run this trial only, counted from 0
        ray: address of a Ray cluster; `local` starts one on this machine
        storage: where tpe and pruners keep results: an address that all machines reach, as
            postgresql+psycopg://user@host/database (default: an SQLite file in the study's folder)
        output: folder of the study (default: runs/sweeps/STUDY)
    """

    workers: Count = 1
    gpus_per_trial: Annotated[int, AtLeast(0)] = 0
    over: list[Annotated[str, "KEY=[VALUES]"]] | None = None
    point: Annotated[int, AtLeast(0)] | None = None
    ray: Annotated[str, "ADDRESS"] = ""
    storage: Annotated[str, "ADDRESS"] = ""
    output: Path | None = None


def parser() -> Parser:
    """The flags of the command itself; all others go to every trial."""
    found = make_parser(Options, "interventune sweep")
    found.add_argument(
        "file", help="a file, or the name of one in configs/sweeps; training/sweep/file.py describes it"
    )
    found.add_argument(
        "-c",
        "--config",
        action="append",
        default=[],
        metavar="FILE",
        help="as for fit, behind its own",
    )
    return found


def sweep_of(argv: Sequence[str]) -> tuple[Sweep, Options]:
    """The sweep that a command line describes, and its options. ValueError for a mistake in either."""
    arguments, overrides = parser().parse_known_args(argv)
    options: Options = call(Options, arguments)
    configs = [str(shipped(name, "experiments", "backbones")) for name in arguments.config]
    sweep = read_sweep(shipped(arguments.file, "sweeps"), overrides, configs=configs, over=options.over or ())
    sweep.check_needs()
    return sweep, options


def main(argv: Sequence[str]) -> int:
    """The command: 0 when something is complete, 1 when nothing is, 2 after a mistake, 130 when stopped."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        sweep, options = sweep_of(argv)
        folder = options.output or Path("runs") / "sweeps" / sweep.study
        return run_sweep(Study(sweep=sweep, folder=folder.absolute(), storage=options.storage), options)
    except (ValueError, OSError, optuna.exceptions.OptunaError, sqlalchemy.exc.SQLAlchemyError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def run_sweep(study: Study, options: Options) -> int:
    """Run what has not ended, then show the study.

    Returns:
        0, 1 when no point is complete, 130 when it was interrupted.

    Raises:
        ValueError, OSError: something is wrong before the first point, or none can be run.
    """
    sweep, count = study.sweep, study.sweep.count()
    if options.gpus_per_trial and any(flag.startswith("--trainer.devices=") for flag in sweep.flags):
        raise ValueError("--gpus-per-trial sets trainer.devices; leave one of them out")
    if options.point is not None and options.point >= count:
        raise ValueError(f"--point {options.point}: there are {count} points, counted from 0")
    if options.ray and (options.workers > 1 or options.point is not None):
        raise ValueError(
            "--ray runs as many trials as the cluster has room for; leave out --workers and --point"
        )
    if options.ray not in ("", "local") and sweep.needs_results() and not study.storage:
        raise ValueError(
            "--ray: tpe and pruners need a database that all machines reach; name it by --storage"
        )
    shares = [] if options.ray else share_out(options.workers, options.gpus_per_trial)
    prepare(study)
    try:
        if options.point is not None:
            with sigterm_as_interrupt():
                point = run_point(study, options.point, shares[0])
            print(point.line(study.sweep.metric))
            if point.state == "failed":
                print(log_tail(point), file=sys.stderr)
            return {"unfinished": INTERRUPTED, "failed": 1}.get(point.state, 0)
        if options.ray:
            run_on_ray(study, options.ray, options.gpus_per_trial)
        else:
            run_locally(study, shares)
    except KeyboardInterrupt:
        points = study.points()
        write_table(study, points)
        ended = sum(point.ended for point in points)
        print(f"stopped: {ended} of {len(points)} trials have ended; the same command goes on")
        return INTERRUPTED
    return conclude(study)


def prepare(study: Study) -> None:
    """Keep what is swept in the folder; a new sweep is tried on the parser of `fit` first.

    Raises:
        ValueError: `fit` refuses it, or the folder holds another sweep.
    """
    description, kept = study.sweep.description(), study.folder / DESCRIPTION
    if not kept.exists():
        if (study.folder / TRIALS).exists():
            raise ValueError(f"{study.folder}: holds trials of another study; choose another --output")
        arguments = study.sweep.fit_arguments(study.sweep.first_parameters())
        command = [*study.command, *arguments, "--print_config"]
        done = subprocess.run(command, capture_output=True, text=True, env=own_environment())
        if done.returncode:
            reason = done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"
            raise ValueError(f"fit refuses the first trial: {reason.removeprefix('error: ')}")
        check_sizes(study.sweep, yaml.safe_load(done.stdout) or {})
    study.folder.mkdir(parents=True, exist_ok=True)
    with FileLock(study.folder / LOCK):
        if study.sweep.needs_results():
            open_study(study.sweep, study.storage, study.folder)
        if not kept.exists():
            write_text(kept, json.dumps(description, indent=1) + "\n")
    known = load_json(kept)
    for key, value in description.items():
        if known.get(key) != value:
            raise ValueError(
                f"study {study.sweep.study}: was begun with other arguments; continue with the same, or give "
                f"this one another name (study:). {key}: {known.get(key)} there, {value} here"
            )


def check_sizes(sweep: Sweep, config: dict[str, Any]) -> None:
    """Raise ValueError where a swept `data.limit_train_groups` is more than there are: such a curve over
    sizes would repeat its last point.

    Args:
        sweep: what is swept.
        config: of the first trial, as `fit` resolves it.
    """
    sizes, sources = sweep.space.get(SIZES), config.get("data", {}).get("init_args", {}).get("train_groups")
    if not isinstance(sizes, list) or "data.train_groups" in sweep.space:
        return
    if wrong := [size for size in sizes if type(size) is not int]:
        raise ValueError(f"{SIZES}: {wrong[0]!r} is no whole number")
    count = sum(1 for source in sources or [] for _ in read_groups(source))
    if largest := [size for size in sizes if size > count]:
        raise ValueError(
            f"{SIZES}: {', '.join(map(str, largest))} groups are asked for, and {', '.join(sources or [])} "
            f"holds {count}; name a larger file, or --over {SIZES}="
            f"{json.dumps([size for size in sizes if size <= count])}"
        )


def write_table(study: Study, points: Sequence[Point]) -> pd.DataFrame:
    """study.csv: one row for each point, in their order."""
    facts = ("name", "state", "value", "reason", "seconds")
    rows = [{fact: getattr(point, fact) for fact in facts} | point.parameters for point in points]
    table = pd.DataFrame(rows).rename(columns={"name": "trial", "value": study.sweep.metric})
    write_text(study.folder / "study.csv", table.to_csv(index=False))
    return table


def conclude(study: Study) -> int:
    """Show what there is, the best point first and those without a value last; 1 when nothing is complete."""
    points, sweep = study.points(), study.sweep
    table = write_table(study, points)
    value = table[sweep.metric].astype(float) * (-1 if sweep.direction == "maximize" else 1)
    order = pd.DataFrame({"state": table["state"].map(get_args(State).index), "value": value})
    shown = table.loc[order.sort_values(["state", "value"], kind="stable").index]
    print(shown.to_string(index=False, na_rep="", float_format="{:.6g}".format))
    complete = [(point.value, point.parameters) for point in points if point.value is not None]
    write_pictures(sweep, complete, study.folder)
    failed = [point for point in points if point.state == "failed"]
    if failed:
        print(f"the end of {failed[0].folder / LOG}:\n{log_tail(failed[0])}")
    counts = table["state"].value_counts().sort_index()
    kept = sum(path.stat().st_size for path in study.folder.glob(f"{TRIALS}/*/{RUN}/checkpoints/*"))
    states = ", ".join(f"{n} {state}" for state, n in counts.items())
    print(f"{states}; {study.folder} ({kept / 1e9:.1f} GB of checkpoints)")
    return int(not complete)
