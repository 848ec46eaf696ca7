"""Killed at random moments and resumed, training ends as undisturbed (environment: KILLS, SEED)."""

import os
import random
import time
from pathlib import Path

import pytest

from tests.support.finished_runs import differences, temporary_files, unreadable
from tests.support.processes import Started, run_module
from tests.training.conftest import DROPOUT, Commands, SmallData, launch

pytestmark = pytest.mark.chaos
SPLITS = ("train", "dev", "train", "heldout")
STORIES = SmallData(*(Path(f"stories:{split}") for split in SPLITS))
KILLS, SEED = (int(os.environ.get(name, default)) for name, default in (("KILLS", 20), ("SEED", 0)))


def planted(root: Path, name: str) -> list[str]:
    """300 steps in the folder `root/name/0`, which go on where they were stopped."""
    flags = """--run.version=0 --run.save_every_n_steps=3 --ckpt_path=auto --trainer.max_steps=300
        --trainer.max_epochs=99 --trainer.log_every_n_steps=1 --trainer.val_check_interval=10
        --trainer.check_val_every_n_epoch=null --data.groups_per_class=1 --data.qa_every=1
        --data.limit_train_qa=300 --data.qa_batch_size=8 --data.limit_val_qa=60
        --data.limit_val_groups=8"""
    own = [DROPOUT, f"--run.name={name}"]
    return Commands(root, STORIES).of("fit", "lei_planted", "roberta", *own, *flags.split())


def ends_well(root: Path, name: str) -> float:
    """Let a training run to its end; the seconds that this took."""
    start = time.monotonic()
    launch(planted(root, name))
    return time.monotonic() - start


def test_kills_leave_whole_files_and_an_equal_end(tmp_path: Path) -> None:
    # At any moment of start-up, training and end; every second kill waits for a file that is being
    # written.
    dice, seconds = random.Random(SEED), ends_well(tmp_path, "undisturbed")
    kills = runs = 0
    while kills < KILLS:
        name, runs = f"killed_{runs}", runs + 1
        home = tmp_path / name / "0"
        while kills < KILLS:
            left = set(temporary_files(home))  # by the kill before
            process = Started(run_module, "training", planted(tmp_path, name))
            process.join(dice.uniform(0.02, seconds))
            end = time.monotonic() + dice.choice((0, 2))
            while process.is_alive() and left.issuperset(temporary_files(home)):
                if time.monotonic() > end:
                    break
                time.sleep(0.001)
            if not process.is_alive():
                break
            process.kill()
            kills += 1
            process.join()
            assert not unreadable(home), f"{name}, {kills} kills: {unreadable(home)}"
        ends_well(tmp_path, name)
        assert not list(differences(tmp_path / "undisturbed" / "0", home))
