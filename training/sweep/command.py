"""Many runs of `fit`, over the values that a file names, by any number of workers on any machines.

    python -m training sweep configs/sweeps/demo_grid.yaml --workers 2 [--key=value for every trial ...]

The same command goes on with a study that was interrupted, joins one that others work on, and shows one that
has ended. Every trial is the ordinary `fit` command in a folder of its own, STUDY/trials/trial_NNNN, with
log.txt beside its run; a trial that fails is recorded with the end of its log, and one whose worker died is
taken up again where its last checkpoint was.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType

import optuna
from filelock import FileLock

from data_modules.encoding.arrow_rows import cores
from training.sweep.file import Sweep, first_parameters, fit_arguments, read_sweep
from training.sweep.queue import DATABASE, SweepQueue, current_trials, has_result, open_storage
from training.sweep.report import best_first, counts, print_table, write_csv, write_pictures
from training.sweep.worker import FIT, TRIALS, Job, Share, work, worker_name

INTERRUPTED = 130
"""Exit code after Ctrl-C."""


def main(argv: Sequence[str]) -> int:
    """The command; 0 when the study has ended and something is complete."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    args, overrides = make_parser().parse_known_args(argv)
    try:
        sweep = read_sweep(args.file, overrides)
        return run_sweep(
            sweep,
            folder=args.output or Path("runs") / "sweeps" / sweep.study,
            storage=args.storage,
            workers=args.workers,
            gpus_per_trial=args.gpus_per_trial,
            heartbeat=args.heartbeat,
        )
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED


def make_parser() -> argparse.ArgumentParser:
    """The flags of the command itself; all others go to every trial."""
    parser = argparse.ArgumentParser(
        prog="python -m training sweep",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("file", help="as configs/sweeps/demo_grid.yaml; training/sweep/file.py describes it")
    parser.add_argument("--workers", type=int, default=1, help="trials at the same time on this machine")
    parser.add_argument(
        "--storage",
        default="",
        help="an address that several machines reach, as postgresql+psycopg://user@host/database "
        "(default: an SQLite file in the study's folder)",
    )
    parser.add_argument("--gpus-per-trial", type=int, default=0, help="GPUs of its own for every worker")
    parser.add_argument("--output", type=Path, help="folder of the study (default: runs/sweeps/STUDY)")
    parser.add_argument(
        "--heartbeat",
        type=int,
        default=30,
        help="seconds between two signs of life; after four without any a worker counts as dead",
    )
    return parser


def run_sweep(
    sweep: Sweep,
    *,
    folder: Path,
    storage: str = "",
    workers: int = 1,
    gpus_per_trial: int = 0,
    heartbeat: int = 30,
    grace: float = 30.0,
    command: Sequence[str] = FIT,
) -> int:
    """Work on a study until every point has its result, then show it.

    Args:
        sweep: what to do.
        folder: of the study.
        storage: address of the study; empty: a file in the folder.
        workers: processes that take trials.
        gpus_per_trial: GPUs of each; 0 leaves them alone.
        heartbeat: seconds between two signs of life.
        grace: seconds that a stopped trial has to write its checkpoint.
        command: what runs a trial, before its arguments.

    Returns:
        0, 1 when no trial is complete, 130 when it was interrupted.

    Raises:
        ValueError: something is wrong before the first trial, or no worker can work.
    """
    for flag, value in (("--workers", workers), ("--heartbeat", heartbeat)):
        if value < 1:
            raise ValueError(f"{flag} must be at least 1, got {value}")
    if gpus_per_trial and any(flag.startswith("--trainer.devices=") for flag in sweep.flags):
        raise ValueError("--gpus-per-trial sets trainer.devices; leave one of them out")
    shares = share_out(workers, gpus_per_trial)
    folder = folder.absolute()
    address = storage or f"sqlite:///{folder / DATABASE}"
    job = Job(
        sweep=sweep, storage=address, folder=folder, heartbeat=heartbeat, grace=grace, command=tuple(command)
    )
    queue = prepared(job, embedded=not storage)
    interrupted = not queue.ended() and not Crew(job, queue, shares).finish()
    return conclude(job, queue, interrupted=interrupted)


def prepared(job: Job, *, embedded: bool) -> SweepQueue:
    """The study, with every point in it. A new one is tried on the parser of `fit` first."""
    begun = (job.folder / DATABASE).exists() if embedded else True
    if not begun:
        try_arguments(job)
    job.folder.mkdir(parents=True, exist_ok=True)
    with FileLock(job.folder / ".lock"):
        storage = open_storage(job.storage, job.heartbeat)
        if begun and job.sweep.study not in optuna.get_all_study_names(storage):
            try_arguments(job)
        queue = SweepQueue(job.sweep, storage)
        if not queue.trials and any((job.folder / TRIALS).glob("trial_*")):
            raise ValueError(f"{job.folder}: holds trials of another study; choose another --output")
        queue.fill()
    return queue


def try_arguments(job: Job) -> None:
    """ValueError when `fit` does not understand the first combination."""
    arguments = fit_arguments(job.sweep, first_parameters(job.sweep))
    done = subprocess.run([*job.command, *arguments, "--print_config"], capture_output=True, text=True)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        silent = f"ended by signal {-done.returncode}" if done.returncode < 0 else "without a word"
        reason = said[-1].removeprefix("error: ") if said else silent
        raise ValueError(f"fit refuses the first trial: {reason}")


def share_out(workers: int, gpus_per_trial: int) -> list[Share]:
    """Every worker's part of the machine. ValueError when there are too few GPUs."""
    if gpus_per_trial < 0:
        raise ValueError(f"--gpus-per-trial must not be negative, got {gpus_per_trial}")
    if not gpus_per_trial:
        return [Share(threads=max(1, cores() // workers) if workers > 1 else 0)] * workers
    visible, k = visible_gpus(), gpus_per_trial
    if len(visible) < workers * k:
        raise ValueError(
            f"--workers {workers} --gpus-per-trial {k}: needs {workers * k} GPUs, {len(visible)} are visible"
        )
    return [Share(devices=tuple(visible[i * k : (i + 1) * k])) for i in range(workers)]


def visible_gpus() -> list[str]:
    """As CUDA_VISIBLE_DEVICES names them, or 0, 1, ..."""
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return [name.strip() for name in named.split(",")][:count] if named else [str(i) for i in range(count)]


@dataclass
class Hand:
    """A running worker, what it may use, and the end of the lifeline whose closing stops it."""

    process: BaseProcess
    share: Share
    lifeline: Connection


class Crew:
    """The workers of this machine: started, replaced when killed, stopped together.

    Args:
        job: what they know.
        queue: the study.
        shares: one worker for each.
    """

    def __init__(self, job: Job, queue: SweepQueue, shares: Sequence[Share]) -> None:
        self.job, self.queue, self.shares = job, queue, shares
        # Each death costs a trial one of its retries, or happened before a trial was taken: it ends in any
        # case.
        self.replacements = len(shares) + len(current_trials(queue.trials)) * (job.sweep.retries + 1)

    def finish(self) -> bool:
        """True when every point has its result, False after Ctrl-C or SIGTERM. ValueError when no worker is
        left."""
        hands: list[Hand] = []
        with sigterm_as_interrupt():
            try:
                hands += [self._start(share) for share in self.shares]
                while hands:
                    wait([hand.process.sentinel for hand in hands])
                    hands = [kept for hand in hands for kept in self._looked_at(hand)]
            except KeyboardInterrupt:
                print("stopping the running trials ...", flush=True)
                return False
            finally:
                self._stop(hands)
        if not self.queue.ended():
            raise ValueError("no worker is left; what they said stands above. The same command goes on")
        return True

    def _start(self, share: Share) -> Hand:
        context = multiprocessing.get_context("spawn")
        theirs, ours = context.Pipe(duplex=False)
        process = context.Process(target=work, args=(self.job, share, theirs))
        # A Ctrl-C that comes now is for us, and waits: what we start inherits that it is blocked.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
        finally:
            theirs.close()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        return Hand(process, share, ours)

    def _looked_at(self, hand: Hand) -> list[Hand]:
        """The hand itself while it works; another one for one that was killed; nobody for one that ended."""
        code = hand.process.exitcode
        if code is None:
            return [hand]
        hand.lifeline.close()
        if code == 0:
            return []
        self.queue.release(worker_name(hand.process.pid or 0))
        if code > 0 or not self.replacements:
            return []
        print(
            f"worker {hand.process.pid} was killed (signal {-code}); another one takes its trial", flush=True
        )
        self.replacements -= 1
        return [self._start(hand.share)]

    def _stop(self, hands: Sequence[Hand]) -> None:
        for hand in hands:
            hand.lifeline.close()
        for hand in hands:
            hand.process.join(self.job.grace + 30)
            if hand.process.is_alive():
                hand.process.kill()
                hand.process.join()


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """A batch system's SIGTERM stops like Ctrl-C, also where a shell in the background has SIGINT ignored."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def conclude(job: Job, queue: SweepQueue, *, interrupted: bool) -> int:
    """Show what there is and write it down."""
    trials = best_first(queue.study)
    write_csv(queue.study, job.folder / "study.csv")
    if interrupted:
        ended = sum(map(has_result, trials))
        print(f"stopped: {ended} of {len(trials)} trials have ended; the same command goes on")
        return INTERRUPTED
    print_table(queue.study, job.sweep.metric, list(job.sweep.space))
    write_pictures(queue.study, job.folder, job.sweep.metric)
    print(f"{counts(trials)}; {job.folder}")
    return 0 if trials and trials[0].value is not None else 1
