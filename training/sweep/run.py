"""Many runs of `fit`. Optuna's database records which points are waiting or running, and whose
worker died.

A point is one `fit` in STUDY/points/VALUES, so a repeated point resumes from its last checkpoint.
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import optuna
import pandas as pd
import sqlalchemy
import yaml
from filelock import FileLock
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback, fail_stale_trials
from optuna.trial import FrozenTrial, Trial, TrialState
from sqlalchemy.event import listen
from sqlalchemy.exc import SQLAlchemyError

from interventune.data_modules.sources import read_groups
from interventune.storage.command_line import AtLeast, Count, Parser, call
from interventune.storage.documents import load_yaml, write_text
from interventune.storage.json_files import check, load_json
from interventune.training.configs import shipped
from interventune.training.sweep.file import Sweep, folder_name

FIT = (sys.executable, "-m", "interventune.training", "fit")
MORE = "another configuration for every run; it overrides those of the sweep"
SIZES = "data.limit_train_groups"
SILENT = """SELECT trial_id FROM trials
    WHERE state = 'RUNNING' AND trial_id NOT IN (SELECT trial_id FROM trial_heartbeats)"""
OTHER_JOB = re.compile(r"(SLURM|SRUN|TORCHELASTIC|MASTER|PMI|PMIX|OMPI)_.*|(.*_)?(RANK|WORLD_SIZE)")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Train once for each combination of the settings that a file lists.

    The same command resumes a sweep. Started several times (in other terminals, or as tasks of
    configs/launch/sweep.sbatch), it divides the runs among its processes. On a finished sweep it
    prints the results. Any other --KEY=VALUE applies to every run.

    Example: interventune sweep demo_grid --workers 2 --over trainer.max_epochs=[1,2]

    Args:
        workers: number of runs at the same time on this machine, which share its GPUs or cores
        over: other values for a key, or another key to vary, such as
            model.learning_rate=[1e-4,3e-4]
        again: repeat failed runs
        storage: database, such as postgresql+psycopg://user@host/database with the password in
            ~/.pgpass (default: sqlite:///STUDY/study.db, for one machine). optuna-dashboard
            displays it.
        dead_after: seconds without a sign of life after which another worker takes over a run
        output: folder of the sweep, which all workers share (default: runs/sweeps/STUDY)
    """

    workers: Count = 1
    over: list[Annotated[str, "KEY=[VALUES]"]] | None = None
    again: bool = False
    storage: Annotated[str, "ADDRESS"] = ""
    dead_after: Annotated[int, AtLeast(1)] = 120
    output: Path | None = None


def sweep_of(argv: Sequence[str]) -> tuple[Sweep, Options]:
    """Return the sweep of a command line, and its options. ValueError for a mistake in either."""
    parser = Parser(Options, prog="interventune sweep")
    parser.add_argument("file", help="a sweep file, or the name of one in configs/sweeps")
    parser.add_argument("-c", "--config", action="append", default=[], metavar="FILE", help=MORE)
    arguments, flags = parser.parse_known_args(argv)
    options: Options = call(Options, vars(arguments))
    path = shipped(arguments.file, "sweeps")
    content = load_yaml(path, Sweep).model_dump()
    content["flags"] += flags
    content["configs"] += [
        str(shipped(name, "experiments", "backbones")) for name in arguments.config
    ]
    for key, _, values in (text.partition("=") for text in options.over or ()):
        content["space"][key] = yaml.safe_load(values)
        if not isinstance(content["space"][key], list | dict):
            raise ValueError(f"--over {key}: write a list of values, as in KEY=[VALUE,VALUE]")
    return check(content, Sweep, str(path)), options


def main(argv: Sequence[str]) -> int:
    """Run the command: 0 if a point is complete, 1 if none is, 2 after a mistake, 130
    if stopped.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return run_sweep(*sweep_of(argv), argv)
    except (ValueError, OSError, optuna.exceptions.OptunaError, SQLAlchemyError) as error:
        print(f"error: {str(error).splitlines()[0]}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; run the same command to resume", file=sys.stderr)
        return 130


def run_sweep(sweep: Sweep, options: Options, argv: Sequence[str]) -> int:
    """Run waiting points, and show the study; 1 if no point is complete. `argv`: for further
    workers.
    """
    folder = (options.output or Path("runs") / "sweeps" / sweep.study).absolute()
    study, storage = prepare(sweep, folder, options)
    (own, *others) = shares(options.workers)
    command = [sys.executable, "-m", "interventune.training", "sweep", *argv, "--workers=1"]
    workers = [
        subprocess.Popen(command, env=os.environ | share, stdout=subprocess.DEVNULL)
        for share in others
    ]
    os.environ.update(own)
    try:
        work(sweep, study, storage, folder)
    except KeyboardInterrupt:
        for worker in workers:
            worker.terminate()
        raise
    finally:
        for worker in workers:
            worker.wait()
    table = write_table(sweep, study, folder)
    ranked = table.sort_values(sweep.metric, ascending=sweep.direction == "minimize", kind="stable")
    print(ranked.to_string(index=False, na_rep="", float_format="{:.6g}".format))
    print(
        ", ".join(f"{n} {state}" for state, n in table["state"].value_counts().items()),
        folder,
        sep="; ",
    )
    return int("complete" not in set(table["state"]))


def shares(workers: int) -> list[dict[str, str]]:
    """Return environment variables for every worker: its part of the visible GPUs, or
    of the cores.
    """
    if workers == 1:
        return [{}]
    import torch

    count, named = torch.cuda.device_count(), os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = named.split(",")[:count] if named else [str(gpu) for gpu in range(count)]
    if gpus:
        parts = [gpus[at::workers] or [gpus[at % count]] for at in range(workers)]
        return [{"CUDA_VISIBLE_DEVICES": ",".join(part)} for part in parts]
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    threads = os.environ.get("OMP_NUM_THREADS") or str(max(1, cores // workers))
    return [{"OMP_NUM_THREADS": threads}] * workers


def prepare(sweep: Sweep, folder: Path, options: Options) -> tuple[optuna.Study, RDBStorage]:
    """Return the study, all points enqueued, and its database. ValueError: bad point,
    wrong folder.
    """
    kept, content = folder / "sweep.json", json.loads(sweep.model_dump_json(exclude={"trials"}))
    if not kept.exists():
        check_first_point(sweep)
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):  # two processes would enqueue everything twice
        storage = open_storage(folder, options)
        if kept.exists() and load_json(kept) != content:
            raise ValueError(
                f"{kept}: was begun with other values or flags; choose another --output"
            )
        if not kept.exists() and sweep.study in optuna.get_all_study_names(storage):
            raise ValueError(
                f"--storage: has a study {sweep.study} of another folder; rename this one"
            )
        write_text(kept, json.dumps(content, indent=1) + "\n")
        study = optuna.create_study(
            study_name=sweep.study, storage=storage, direction=sweep.direction, load_if_exists=True
        )
        known = latest(study)
        for number, point in enumerate(sweep.points()):
            trial = known.get(number)
            if trial is None or (options.again and trial.state == TrialState.FAIL):
                study.enqueue_trial(trial.params if trial else point, user_attrs={"point": number})
    return study, storage


def check_first_point(sweep: Sweep) -> None:
    """ValueError if `fit` rejects it, or if the last points of a curve over sizes would be
    identical.
    """
    points = sweep.points()
    first = points[0] or sweep.parameters(optuna.create_study().ask())
    command = [*FIT, *sweep.arguments(first), "--print_config"]
    done = subprocess.run(command, capture_output=True, text=True, env=own_environment())
    if done.returncode:
        raise ValueError(f"the first point: {done.stderr.strip().rpartition('error: ')[2]}")
    sources = yaml.safe_load(done.stdout)["data"].get("init_args", {}).get("train_groups") or []
    count = sum(1 for source in sources for _ in read_groups(source))
    if (
        max(int(point.get(SIZES) or 0) for point in points) > count
        and "data.train_groups" not in sweep.space
    ):
        raise ValueError(
            f"{SIZES}: {', '.join(sources)} holds {count}; leave out sizes above (--over)"
        )


def open_storage(folder: Path, options: Options) -> RDBStorage:
    """Open the database. The ValueError for failure does not show the address."""
    address = options.storage or f"sqlite:///{folder / 'study.db'}"
    sqlite = address.startswith("sqlite")
    try:
        storage = RDBStorage(
            address,
            {"connect_args": {"timeout": 60}} if sqlite else {"pool_pre_ping": True},
            heartbeat_interval=max(1, options.dead_after // 4),
            grace_period=options.dead_after,
            heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(max_retry=3),
        )
    except (ValueError, SQLAlchemyError, ImportError, optuna.exceptions.OptunaError) as error:
        # "@" or a strange port: parts of a password in the wrong place.
        hide = isinstance(error, ValueError) or "@" in str(error)
        reason = "no address of a database" if hide else str(error).splitlines()[0]
        raise ValueError(
            f"--storage: {reason} (as postgresql+psycopg://user@host/database)"
        ) from None
    if sqlite:  # it does not lock rows: two workers could read the same point before either writes
        listen(
            storage.engine,
            "connect",
            lambda connection, _: setattr(connection, "isolation_level", None),
        )
        listen(
            storage.engine,
            "begin",
            lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"),
        )
        storage.engine.dispose()
    return storage


def latest(study: optuna.Study) -> dict[int, FrozenTrial]:
    """Return the trial that represents each point, by its number: a complete one, else the last."""
    found: dict[int, FrozenTrial] = {}
    for trial in study.get_trials(deepcopy=False):
        number = trial.user_attrs.get("point")
        if number is not None and (
            number not in found or found[number].state != TrialState.COMPLETE
        ):
            found[number] = trial
    return dict(sorted(found.items()))


def write_table(sweep: Sweep, study: optuna.Study, folder: Path) -> pd.DataFrame:
    """Write study.csv, with one row per point."""
    rows = []
    for trial in latest(study).values():
        row = {"point": folder_name(trial.params), "state": trial.state.name.lower()}
        row |= {
            sweep.metric: trial.value,
            "seconds": trial.duration and trial.duration.total_seconds(),
        }
        rows.append(row | {"reason": trial.user_attrs.get("reason")} | trial.params)
    table = pd.DataFrame(rows).astype({sweep.metric: float})
    write_text(folder / "study.csv", table.to_csv(index=False))
    return table


def work(sweep: Sweep, study: optuna.Study, storage: RDBStorage, folder: Path) -> None:
    """Take points until none is waiting or running."""

    def run(trial: Trial) -> float:
        if (
            "point" not in trial.user_attrs
        ):  # another worker was faster, and Optuna has created a new trial
            raise optuna.TrialPruned
        number = trial.user_attrs["point"]
        study.sampler = optuna.samplers.TPESampler(seed=number, constant_liar=True)
        parameters = sweep.parameters(trial)
        name = folder_name(parameters)
        try:
            value = run_point(sweep, folder / "points" / name, parameters)
        except KeyboardInterrupt:
            study.enqueue_trial(parameters, user_attrs={"point": number})
            raise
        except Exception as error:
            trial.set_user_attr("reason", str(error))
            print(name, "fail", error, sep="  ", file=sys.stderr)
            raise
        print(name, f"{sweep.metric} {value:.4g}", sep="  ", file=sys.stderr)
        return value

    while study.get_trials(deepcopy=False, states=(TrialState.WAITING, TrialState.RUNNING)):
        if study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
            with suppress(ValueError):  # this worker was silent too long, and another got its point
                study.optimize(run, n_trials=1, catch=(Exception,))
        else:
            with (
                storage.engine.connect() as connection
            ):  # their workers died before the first sign of life
                silent = connection.scalars(sqlalchemy.text(SILENT)).all()
            for trial_id in silent:
                storage.record_heartbeat(trial_id)
            fail_stale_trials(study)  # re-enqueues the points of dead workers
            time.sleep(1)


def run_point(sweep: Sweep, folder: Path, parameters: Mapping[str, Any]) -> float:
    """Start or resume a `fit` unless it has finished; return its metric. RuntimeError, ValueError:
    none.
    """
    run, log = folder / "run", folder / "log.txt"
    run.mkdir(parents=True, exist_ok=True)
    with FileLock(
        run / ".lock"
    ):  # `fit`'s lock: the process of a killed worker may still be running
        ended = (run / "metrics.json").exists()
    if not ended:
        place = [
            f"--run.root={folder.parent}",
            f"--run.name={folder.name}",
            f"--run.version={run.name}",
        ]
        command = [*FIT, *sweep.arguments(parameters), *place, "--ckpt_path=auto"]
        with open(log, "ab") as file:  # own session: Ctrl-C reaches only the worker
            output: Any = {"stdin": subprocess.DEVNULL, "stdout": file, "stderr": file}
            fit = subprocess.Popen(command, env=own_environment(), start_new_session=True, **output)
        try:
            code = fit.wait()
        except KeyboardInterrupt:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a scheduler may send several
            fit.terminate()
            fit.wait()
            raise
        finally:
            with suppress(
                ProcessLookupError
            ):  # processes of a multi-GPU run that outlived the first
                os.killpg(fit.pid, signal.SIGKILL)
        if code:
            lines = log.read_text(errors="replace").strip().splitlines()
            raise RuntimeError(f"exit code {code}: {(lines or ['no words'])[-1]}")
    metrics = load_json(run / "metrics.json")
    key = f"best/{sweep.metric}" if sweep.keep == "best" else sweep.metric
    value = metrics.get(key)
    if value is None or not math.isfinite(value):
        raise ValueError(f"{run}/metrics.json: {key} is {value}; there are {', '.join(metrics)}")
    if sweep.keep == "best":
        (run / "checkpoints" / "last.ckpt").unlink(missing_ok=True)
    return float(value)


def own_environment() -> dict[str, str]:
    """Return the environment without the variables that would make `fit` a process of the
    surrounding job.
    """
    return {name: value for name, value in os.environ.items() if not OTHER_JOB.fullmatch(name)}
