"""A worker of a sweep: takes trials one after another, runs each as a process of its own, tells Optuna the
result."""

from __future__ import annotations

import csv
import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal

import optuna
import sqlalchemy
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import Trial, TrialState

from training.sweep import guard as sweep_guard
from training.sweep.file import Sweep, fit_arguments
from training.sweep.queue import FOLDER, POINT, WORKER, SweepQueue, open_storage
from training.sweep.report import progress_line

FIT = (sys.executable, "-m", "training", "fit")
TURN = 0.2
"""Seconds between two looks at a running trial."""
IDLE = 1.0
"""Seconds until a worker without work looks again whether somebody's trial came back."""
TRIALS, RUN = "trials", "0"
"""Folder of all trials in that of the study, and of the run in that of a trial."""
TAIL = 2000
"""Characters of a failed trial's log that are kept in the study."""

Ending = Literal["exited", "stopped", "pruned", "lost"]


@dataclass(frozen=True, kw_only=True)
class Job:
    """What every worker of a sweep knows.

    Args:
        sweep: what is swept.
        storage: address of the study.
        folder: where the trials are kept.
        heartbeat: seconds between two signs of life.
        grace: seconds that a stopped trial has to write its checkpoint.
        command: what runs a trial, before its arguments.
    """

    sweep: Sweep
    storage: str
    folder: Path
    heartbeat: int = 30
    grace: float = 30.0
    command: Sequence[str] = FIT

    def trial_folder(self, point: int) -> Path:
        """Where a point leaves its log and its run, whoever works on it."""
        return self.folder / TRIALS / f"trial_{point:04d}"

    def run_folder(self, point: int) -> Path:
        """Where `fit` leaves what it leaves."""
        return self.trial_folder(point) / RUN


@dataclass(frozen=True, kw_only=True)
class Share:
    """A worker's part of the machine.

    Args:
        devices: numbers of its GPUs, empty: whatever there is.
        threads: of its processors, 0: all.
    """

    devices: tuple[str, ...] = ()
    threads: int = 0

    def environment(self) -> dict[str, str]:
        """Of the trials."""
        own = dict(os.environ)
        if self.devices:
            own["CUDA_VISIBLE_DEVICES"] = ",".join(self.devices)
        if self.threads:
            own.setdefault("OMP_NUM_THREADS", str(self.threads))
        return own

    def flags(self) -> list[str]:
        """For `fit`."""
        return [f"--trainer.devices={len(self.devices)}"] if self.devices else []


def worker_name(pid: int) -> str:
    """What a worker is called in the study."""
    return f"{socket.gethostname()}:{pid}"


def work(job: Job, share: Share, lifeline: Connection) -> None:
    """Take trials until every point has its result, or until the other end of the lifeline is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to whoever holds the lifeline
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        queue = SweepQueue(job.sweep, open_storage(job.storage, job.heartbeat))
        while not lifeline.poll():
            trial = queue.take()
            if trial is not None:
                run_or_lose(job, queue, trial, share, lifeline)
            elif queue.ended():
                return
            else:
                lifeline.poll(IDLE)
    except (ValueError, OSError, optuna.exceptions.OptunaError, sqlalchemy.exc.SQLAlchemyError) as error:
        print(f"error: worker {worker_name(os.getpid())}: {error}", file=sys.stderr, flush=True)
        sys.exit(1)


def run_or_lose(job: Job, queue: SweepQueue, trial: Trial, share: Share, lifeline: Connection) -> None:
    """Run one trial, unless it turns out that somebody found this worker dead and took it over."""
    try:
        mine = run_trial(job, queue, trial, share, lifeline)
    except UpdateFinishedTrialError:
        mine = False
    if not mine:
        print(f"trial_{trial.user_attrs[POINT]:04d}  taken over by another worker", flush=True)


def run_trial(job: Job, queue: SweepQueue, trial: Trial, share: Share, lifeline: Connection) -> bool:
    """Run one trial to whatever end, and tell the study; False when it was somebody else's by then."""
    trial.set_user_attr(WORKER, worker_name(os.getpid()))
    point = trial.user_attrs[POINT]
    trial.set_user_attr(FOLDER, str(job.run_folder(point)))
    folder = job.trial_folder(point)
    folder.mkdir(parents=True, exist_ok=True)
    where = [
        f"--run.root={folder.parent}",
        f"--run.name={folder.name}",
        f"--run.version={RUN}",
    ]
    arguments = [*fit_arguments(job.sweep, trial.params), *share.flags(), *where, "--ckpt_path=auto"]
    curve = Curve(job.run_folder(point) / "metrics.csv", job.sweep.metric)
    with guarded(folder, job.grace, [*job.command, *arguments], share.environment()) as guard:
        ending = follow(guard, queue, trial, curve, job.heartbeat, lifeline)
    if ending == "lost" or not queue.is_mine(trial.number):
        return False
    if ending == "stopped":
        queue.put_back(trial.number)
        return True
    if ending == "pruned":
        queue.study.tell(trial.number, state=TrialState.PRUNED)
    elif guard.returncode < 0:  # somebody killed the guard: as if the worker had died
        queue.lose(trial.number)
        return True
    else:
        record(job, queue, trial.number, point, guard.returncode)
    print(progress_line(queue.trial(trial.number), job.sweep.metric), flush=True)
    return True


@contextmanager
def guarded(
    folder: Path, grace: float, command: Sequence[str], environment: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A command under sweep_guard.py; at the end of the block nothing of it is left."""
    guard = subprocess.Popen(
        [sys.executable, "-P", sweep_guard.__file__, str(folder), str(grace), *command],
        stdin=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    assert guard.stdin is not None
    try:
        yield guard
    finally:
        guard.stdin.close()
        guard.wait()
        with suppress(ProcessLookupError):  # processes of a multi-GPU run that outlived the first
            os.killpg(guard.pid, signal.SIGKILL)


def follow(
    guard: subprocess.Popen[bytes],
    queue: SweepQueue,
    trial: Trial,
    curve: Curve,
    heartbeat: int,
    lifeline: Connection,
) -> Ending:
    """Watch a trial until it exits, or there is a reason to stop it."""
    beat = time.monotonic()
    while guard.poll() is None:
        if lifeline.poll(TURN):
            return "stopped"
        if time.monotonic() - beat >= heartbeat:
            beat = time.monotonic()
            if not alive(queue, trial.number):
                return "lost"
        if any(reported_and_bad(trial, step, value) for step, value in curve.news()):
            return "pruned"
    for step, value in curve.news():
        trial.report(value, step)
    return "exited"


def reported_and_bad(trial: Trial, step: int, value: float) -> bool:
    """Report a value; whether the pruner gives the trial up for it."""
    trial.report(value, step)
    return trial.should_prune()


def alive(queue: SweepQueue, number: int) -> bool:
    """Show a sign of life; False when the trial was given to somebody else. A storage that does not answer
    for a while is no reason to stop."""
    with suppress(optuna.exceptions.StorageInternalError, sqlalchemy.exc.SQLAlchemyError):
        queue.beat(number)
        return queue.is_mine(number)
    return True


class Curve:
    """The rows of a metric in a growing metrics.csv.

    Args:
        path: the file, which need not exist yet.
        key: the metric's column.
    """

    def __init__(self, path: Path, key: str) -> None:
        self.path, self.key = path, key
        self.seen, self.size = 0, -1

    def news(self) -> Iterator[tuple[int, float]]:
        """(1, value), (2, value), ...: what came since the last call, in the order of the rows."""
        size = self.path.stat().st_size if self.path.exists() else -1
        if size == self.size:
            return
        self.size = size
        values = self._values()
        for step in range(self.seen, len(values)):
            yield step + 1, values[step]
        self.seen = max(self.seen, len(values))

    def _values(self) -> list[float]:
        with suppress(OSError), open(self.path, newline="") as file:
            complete = [line for line in file if line.endswith("\n")]  # the last one may be half written
            return [float(row[self.key]) for row in csv.DictReader(complete) if row.get(self.key)]
        return []


def record(job: Job, queue: SweepQueue, number: int, point: int, exit_code: int) -> None:
    """Tell the study what came of a trial whose process ended by itself."""
    if exit_code:
        error = f"exit code {exit_code}"
        if exit_code > 128:
            error += f" (signal {exit_code - 128}{', out of memory?' if exit_code == 137 else ''})"
    else:
        try:
            value = final_value(job.run_folder(point) / "metrics.json", job.sweep.metric)
        except ValueError as found:
            error = str(found)
        else:
            queue.study.tell(number, value)
            return
    queue.fail(number, error, log=tail(job.trial_folder(point) / sweep_guard.LOG))


def final_value(path: Path, key: str) -> float:
    """The metric at the end of a run. ValueError when it is missing, or is no number."""
    try:
        metrics = json.loads(path.read_text())
    except (OSError, ValueError):
        raise ValueError(f"{path}: was not written") from None
    if key not in metrics:
        known = ", ".join(sorted(metrics)) or "nothing"
        raise ValueError(f"{path}: has no {key}; it has {known}")
    if not math.isfinite(metrics[key]):
        raise ValueError(f"{path}: {key} is {metrics[key]}")
    return float(metrics[key])


def tail(log: Path) -> str:
    """The end of a log."""
    with suppress(OSError):
        return log.read_text(errors="replace")[-TAIL:]
    return ""
