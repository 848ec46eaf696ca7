"""kill -9 training at random moments, resume by the same command, and compare with the undisturbed run.

`pytest -m chaos`; KILLS (20) and SEED (0) of the environment say how many, and when.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.finished_runs import differences, temporary_files, unreadable

pytestmark = pytest.mark.chaos

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "configs"
SIZES = (
    "{vocab_size: 320, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2, pad_token_id: 1, "
    "bos_token_id: 0, eos_token_id: 2, type_vocab_size: 1, hidden_dropout_prob: 0.1, "
    "attention_probs_dropout_prob: 0.1}"
)
LONGEST_S = 300.0
"""Longest wait for a process to begin training, or to end."""
KILLS, SEED = (int(os.environ.get(name, default)) for name, default in (("KILLS", 20), ("SEED", 0)))


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
    code = start_command(planted(root, name, steps), root / f"{name}.log").wait(LONGEST_S)
    assert code == 0, (root / f"{name}.log").read_text()[-2000:]
    return time.monotonic() - start


def test_kills_leave_whole_files_and_an_equal_end(tmp_path: Path) -> None:
    # At any moment of start-up, training and end; every second kill waits for a file that is being written.
    dice, seconds = random.Random(SEED), ends_well(tmp_path, "undisturbed", 300)
    kills = runs = 0
    while kills < KILLS:
        name, runs = f"killed_{runs}", runs + 1
        home = tmp_path / name / "0"
        while kills < KILLS:
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
            process.wait()
            assert not unreadable(home), f"{name}: not readable after {kills} kills: {unreadable(home)}"
        ends_well(tmp_path, name, 300)
        assert not list(differences(tmp_path / "undisturbed" / "0", home))
