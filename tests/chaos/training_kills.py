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
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
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


def planted(root: Path, name: str, steps: int) -> list[str]:
    """A training on embedded data in the folder `root/name/0`, which goes on where it was stopped."""
    return [
        *("fit", "-c", str(CONFIGS / "experiments" / "lei_planted.yaml")),
        *("-c", str(CONFIGS / "backbones" / "tiny_roberta.yaml")),
        *(f"--backbone.config={SIZES}", f"--run.root={root}", f"--run.name={name}"),
        *("--run.version=0", "--run.wandb=off", "--run.save_every_n_steps=3", "--ckpt_path=auto"),
        *("--trainer.accelerator=cpu", "--trainer.precision=32-true"),
        *("--trainer.enable_progress_bar=false", f"--trainer.max_steps={steps}"),
        *("--trainer.max_epochs=99", "--trainer.log_every_n_steps=1"),
        *("--trainer.val_check_interval=10", "--trainer.check_val_every_n_epoch=null"),
        *("--data.train_qa=stories:train", "--data.limit_train_qa=300", "--data.qa_batch_size=8"),
        *("--data.train_groups=[stories:train]", "--data.groups_per_class=1", "--data.qa_every=1"),
        *("--data.val_qa={main: 'stories:dev'}", "--data.limit_val_qa=60"),
        *("--data.val_groups={main: 'stories:heldout'}", "--data.limit_val_groups=8"),
    ]


def ends_well(root: Path, name: str, steps: int) -> float:
    """Let a training run to its end; the seconds that this took."""
    start = time.monotonic()
    CODES.append(start_command(planted(root, name, steps), root / f"{name}.log").wait(LONGEST_S))
    assert CODES[-1] == 0, (root / f"{name}.log").read_text()[-2000:]
    return time.monotonic() - start


def test_kills_of_training(options: argparse.Namespace, tmp_path: Path) -> None:
    """kill -9 of a training, started again by the same command

    Promise: every file is whole after each kill; weights, optimiser, metrics and curves end equal to the bit.
    """
    # At any moment of start-up, training and end; every second kill waits for a file that is being written.
    dice, seconds = random.Random(options.seed), ends_well(tmp_path, "undisturbed", 300)
    kills = runs = 0
    while kills < options.kills:
        name, runs = f"killed_{runs}", runs + 1
        home = tmp_path / name / "0"
        while kills < options.kills:
            left = set(temporary_files(home))  # by the kill before
            process = start_command(planted(tmp_path, name, 300), tmp_path / f"{name}.log")
            with suppress(subprocess.TimeoutExpired):
                process.wait(dice.uniform(0.02, seconds))
            end = time.monotonic() + dice.choice((0, 2))
            while (
                process.poll() is None and time.monotonic() < end and left.issuperset(temporary_files(home))
            ):
                time.sleep(0.001)
            if process.poll() is not None:
                break
            os.killpg(process.pid, signal.SIGKILL)
            kills += 1
            CODES.append(process.wait())
            assert not unreadable(home), f"{name}: not readable after {kills} kills: {unreadable(home)}"
        ends_well(tmp_path, name, 300)
        assert not list(differences(tmp_path / "undisturbed" / "0", home))


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_signal(name: str, code: int, tmp_path: Path) -> None:
    """{name} while it trains, then the same command

    Promise: exit code {code}, nothing half-written; it goes on, and ends equal to the bit.
    """
    ends_well(tmp_path, "undisturbed", 120)
    home = tmp_path / name / "0"
    process = start_command(planted(tmp_path, name, 120), tmp_path / f"{name}.log")
    wait_until(lambda: (home / "checkpoints" / "last.ckpt").exists() or process.poll() is not None)
    process.send_signal(getattr(signal, name))
    CODES.append(process.wait(LONGEST_S))
    assert process.returncode == code
    assert not temporary_files(home)
    assert not unreadable(home)
    ends_well(tmp_path, name, 120)
    assert not list(differences(tmp_path / "undisturbed" / "0", home))


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
    """What tells two finished runs apart: weights, optimiser, best.ckpt, metrics, curves; empty: nothing."""
    first, second = (torch.load(folder / "checkpoints/last.ckpt", weights_only=True) for folder in (one, two))
    for part in ("state_dict", "optimizer_states", "lr_schedulers", "global_step"):
        if not same(first[part], second[part]):
            yield f"{part} of last.ckpt differs"
    best = [folder / "checkpoints/best.ckpt" for folder in (one, two)]
    steps = [torch.load(path, weights_only=True)["global_step"] if path.exists() else None for path in best]
    if steps[0] != steps[1]:
        yield f"best.ckpt is of step {steps[1]}, not {steps[0]}"
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


def read_curves(path: Path) -> list[tuple[str, ...]]:
    """The lines of metrics.csv without those of times."""
    with open(path, newline="") as file:
        return [tuple(row) for row in csv.reader(file) if not any(part in row[2] for part in TIMES)]


def wait_until(reached: Any, seconds: float = LONGEST_S) -> None:
    end = time.monotonic() + seconds
    while not reached() and time.monotonic() < end:
        time.sleep(0.001)
