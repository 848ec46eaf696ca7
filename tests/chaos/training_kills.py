"""kill -9 training at random moments, resume by the same command, and compare with the undisturbed run."""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from tests.malformed.outcome import CODES

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "configs"
SIZES = (
    "{vocab_size: 320, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2, pad_token_id: 1, "
    "bos_token_id: 0, eos_token_id: 2, type_vocab_size: 1, hidden_dropout_prob: 0.1, "
    "attention_probs_dropout_prob: 0.1}"
)
LIMIT_S = 3600
LONGEST_S = 300.0
"""Longest wait for a process to begin training, or to end."""
TIMES = ("time", "seconds", "per_s", "per_second")
"""Parts of the names of columns that differ from run to run."""


class Phases(pl.Callback):
    """Writes the phase into the file `path`, in one write, whenever it changes."""

    def __init__(self, *, path: str) -> None:
        self.path = path

    def tell(self, phase: str) -> None:
        """Put the phase in place of the one before."""
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o644)
        os.pwrite(handle, f"{phase:<12}".encode(), 0)
        os.close(handle)

    def on_train_start(self, *args: Any) -> None:
        self.tell("training")

    def on_validation_start(self, *args: Any) -> None:
        self.tell("validation")

    def on_validation_end(self, *args: Any) -> None:
        self.tell("training")

    def on_train_end(self, *args: Any) -> None:
        self.tell("ending")


def phase_of(path: Path) -> str:
    """The phase that stands there; `start-up` before any."""
    try:
        return path.read_text().strip() or "start-up"
    except FileNotFoundError:
        return "start-up"


@dataclass
class Kills:
    """What was killed, or when, and how that ended."""

    made: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def summary(self) -> str:
        """One line."""
        made, ended = (
            ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
            for counts in (self.made, self.ended)
        )
        return f"killed {made or 'nothing'}; ended: {ended}"


def start_command(arguments: list[str], log: Path, **environment: str) -> subprocess.Popen[bytes]:
    """Begin `python -m training ...` of this checkout; what it prints is added to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "ab") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "training", *arguments],
            cwd=ROOT,
            stdout=out,
            stderr=out,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", **environment},
            start_new_session=True,
        )


@dataclass(frozen=True)
class Training:
    """One run of the embedded data.

    Args:
        root: of all runs.
        name: of this one.
        steps: how long it is.
    """

    root: Path
    name: str
    steps: int

    @property
    def folder(self) -> Path:
        """What the run leaves."""
        return self.root / self.name / "0"

    @property
    def phase(self) -> Path:
        """Where the process says what it does."""
        return self.root / f"{self.name}.phase"

    @property
    def log(self) -> Path:
        """What all its processes printed."""
        return self.root / f"{self.name}.log"

    def command(self) -> list[str]:
        """The arguments that start the run, and go on with it."""
        tell = {"class_path": "tests.chaos.training_kills.Phases", "init_args": {"path": str(self.phase)}}
        return [
            *("fit", "-c", str(CONFIGS / "experiments" / "lei_planted.yaml")),
            *("-c", str(CONFIGS / "backbones" / "tiny_roberta.yaml")),
            *(f"--backbone.config={SIZES}", f"--run.root={self.root}", f"--run.name={self.name}"),
            *("--run.version=0", "--run.wandb=off", "--run.save_every_n_steps=3", "--ckpt_path=auto"),
            *("--trainer.accelerator=cpu", "--trainer.precision=32-true"),
            *("--trainer.enable_progress_bar=false", f"--trainer.max_steps={self.steps}"),
            *("--trainer.max_epochs=99", "--trainer.log_every_n_steps=1"),
            *("--trainer.val_check_interval=10", "--trainer.check_val_every_n_epoch=null"),
            *("--data.train_qa=stories:train", "--data.limit_train_qa=300", "--data.qa_batch_size=8"),
            *("--data.train_groups=[stories:train]", "--data.groups_per_class=1", "--data.qa_every=1"),
            *("--data.val_qa={main: 'stories:dev'}", "--data.limit_val_qa=60"),
            *("--data.val_groups={main: 'stories:heldout'}", "--data.limit_val_groups=8"),
            f"--trainer.callbacks+={json.dumps(tell)}",
        ]

    def start(self) -> subprocess.Popen[bytes]:
        """Begin, or go on."""
        self.phase.unlink(missing_ok=True)
        return start_command(self.command(), self.log)

    def tail(self) -> str:
        """The end of the log."""
        return self.log.read_text(errors="replace")[-2000:]


def test_kills_of_training(options: argparse.Namespace, tmp_path: Path) -> None:
    """kill -9 of a training, started again by the same command

    Promise: every file is whole after each kill; weights, optimiser, metrics and curves end equal to the bit.
    """
    # As many runs as the kills take, each compared at its end. A third of the kills comes while a process
    # starts, the others anywhere in the training, some while a checkpoint is written, some in a validation.
    result, dice = Kills(), random.Random(options.seed)
    undisturbed, seconds = _undisturbed(tmp_path, 300)
    while result.made.total() < options.kills and not result.problems:
        run = Training(tmp_path, f"killed_{result.ended['runs']}", 300)
        result.ended["runs"] += 1
        _kill_until_done(run, options.kills, result, dice, seconds)
        result.problems += [f"{run.name}: {text}" for text in differences(undisturbed.folder, run.folder)]
    assert not result.problems, f"{result.summary()}: {result.problems}"
    assert result.made.total() == options.kills
    print(result.summary())


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_signal(name: str, code: int, tmp_path: Path) -> None:
    """{name} while it trains, then the same command

    Promise: exit code {code}, nothing half-written; it goes on, and ends equal to the bit.
    """
    undisturbed, (_, length) = _undisturbed(tmp_path, 120)
    run = Training(tmp_path, "stopped", 120)
    process = run.start()
    wait_until(lambda: phase_of(run.phase) != "start-up" or process.poll() is not None)
    with suppress(subprocess.TimeoutExpired):
        process.wait(0.4 * length)
    process.send_signal(getattr(signal, name))
    CODES.append(process.wait(LONGEST_S))
    assert process.returncode == code, run.tail()
    assert not temporary_files(run.folder)
    assert not unreadable(run.folder)
    process = run.start()
    CODES.append(process.wait(LONGEST_S))
    assert process.returncode == 0, run.tail()
    assert not list(differences(undisturbed.folder, run.folder))


def _undisturbed(root: Path, steps: int) -> tuple[Training, tuple[float, float]]:
    """A run that nobody kills, and the seconds until it trained and until it ended."""
    run = Training(root, "undisturbed", steps)
    start, process = time.monotonic(), run.start()
    wait_until(lambda: phase_of(run.phase) != "start-up" or process.poll() is not None)
    begun = time.monotonic()
    assert process.wait(LONGEST_S) == 0, run.tail()
    return run, (begun - start, time.monotonic() - begun)


def _kill_until_done(
    run: Training, kills: int, result: Kills, dice: random.Random, seconds: tuple[float, float]
) -> None:
    while True:
        left = set(temporary_files(run.folder))  # by the kill before, and removed when training begins
        process = run.start()
        begun, length = seconds
        aim = dice.choice(("start-up", "start-up", "anywhere", "anywhere", "writing", "validation"))
        longest = begun if aim == "start-up" else 1.2 * length / max(4, kills)
        if result.made.total() < kills:
            _await_moment(run, process, left, aim, dice.uniform(0.02, longest))
        else:
            process.wait(LONGEST_S)
        if process.poll() is not None:
            CODES.append(process.returncode)
            if process.returncode:
                result.problems.append(f"{run.name}: going on failed: {run.tail()}")
            return
        os.killpg(process.pid, signal.SIGKILL)
        CODES.append(process.wait())
        result.made[_doing(run, left)] += 1
        if broken := unreadable(run.folder):
            result.problems.append(f"{run.name}: not readable after {result.summary()}: {broken}")
            return


def _await_moment(
    run: Training, process: subprocess.Popen[bytes], left: set[Path], aim: str, seconds: float
) -> None:
    """Return some seconds into the start or the training, when the run does what is aimed at or has ended."""
    if aim != "start-up":
        wait_until(lambda: phase_of(run.phase) != "start-up" or process.poll() is not None)
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    if aim in ("writing", "validation"):
        wait_until(lambda: process.poll() is not None or _doing(run, left) == aim, seconds=2.0)


def _doing(run: Training, left: set[Path]) -> str:
    """The phase of a run, seen from outside; files in `left` are older."""
    return "writing" if set(temporary_files(run.folder)) - left else phase_of(run.phase)


def temporary_files(folder: Path) -> list[Path]:
    """Files that were being written."""
    return [path for path in folder.rglob(".*.tmp") if path.is_file()] if folder.exists() else []


def unreadable(folder: Path) -> str:
    """Which complete-looking checkpoint does not load; empty if all do."""
    for path in folder.glob("checkpoints/*.ckpt"):
        try:
            torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:
            return f"{path.name}: {type(error).__name__}"
    return ""


def differences(one: Path, two: Path) -> Iterator[str]:
    """What tells two finished runs apart: weights, optimiser, metrics, curves; empty if nothing does."""
    first, second = (torch.load(folder / "checkpoints/last.ckpt", weights_only=True) for folder in (one, two))
    for part in ("state_dict", "optimizer_states", "lr_schedulers", "global_step"):
        if not same(first[part], second[part]):
            yield f"{part} of last.ckpt differs"
    scores = [json.loads((folder / "metrics.json").read_text()) for folder in (one, two)]
    for key in sorted(scores[0].keys() | scores[1].keys()):
        if not any(part in key for part in TIMES) and scores[0].get(key) != scores[1].get(key):
            yield f"metrics.json: {key} is {scores[1].get(key)}, not {scores[0].get(key)}"
    curves = [read_curves(folder / "metrics.csv") for folder in (one, two)]
    if curves[0] != curves[1]:
        rows = [i for i, (a, b) in enumerate(zip(*curves, strict=False)) if a != b]
        yield f"metrics.csv differs: {[len(c) for c in curves]} rows, first at {rows[:1]}"
    if left := temporary_files(two):
        yield f"temporary files are left: {', '.join(path.name for path in left)}"


def same(one: Any, two: Any) -> bool:
    """Bit-equal, all the way down."""
    if isinstance(one, torch.Tensor):
        return isinstance(two, torch.Tensor) and one.dtype == two.dtype and torch.equal(one, two)
    if isinstance(one, dict):
        return isinstance(two, dict) and one.keys() == two.keys() and all(same(one[k], two[k]) for k in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(two) and all(map(same, one, two))
    return bool(one == two)


def read_curves(path: Path) -> list[dict[str, str]]:
    """The rows of metrics.csv without times, in the order of steps."""
    with open(path, newline="") as file:
        return [
            {key: value for key, value in row.items() if value and not any(part in key for part in TIMES)}
            for row in csv.DictReader(file)
        ]


def wait_until(reached: Any, seconds: float = LONGEST_S) -> None:
    end = time.monotonic() + seconds
    while not reached() and time.monotonic() < end:
        time.sleep(0.001)
