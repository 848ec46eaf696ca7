"""Kept weights along a run, and what watches them."""

from pathlib import Path

import wandb

from interventune.evaluation.__main__ import main
from tests.training.conftest import Commands

SHIFT = ["shift", "--data", "stories:conversation_dev", "--limit", "4", "--variants", "ts_r"]


def test_numbers_go_to_the_runs_logger(commands: Commands, tmp_path: Path) -> None:
    """Kept weights of a run of ours: step 0, and the last."""
    flags = "--trainer.max_steps=2 --run.keep_every_n_steps=2 --run.wandb=offline"
    home = commands.run("fit", "squad", "bert", flags)
    wandb.finish()
    assert [path.name for path in sorted(home.glob("checkpoints/step_*"))] == [
        "step_000000.ckpt",
        "step_000002.ckpt",
    ]
    command = ["watch", f"m={home}", "--log", "wandb", "--", *SHIFT, "--output", f"{tmp_path}/w"]
    assert main(command) == 0
    folders = [path.name.rpartition("-")[2] for path in home.glob("wandb/offline-run-*")]
    assert len(folders) == 3
    assert len({*folders}) == 1
