"""Kept weights along a run, and what watches them."""

from pathlib import Path

import pandas as pd
import pytest
import wandb
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

import interventune
from interventune.evaluation.__main__ import main
from interventune.models.__main__ import main as export
from tests.training.conftest import Commands, Patch

SHIFT = ["shift", "--data", "stories:conversation_dev", "--limit", "4", "--variants", "ts_r"]


def test_a_watcher_says_what_a_probe_says_and_logs_it(commands: Commands, tmp_path: Path) -> None:
    """Of step 0 and the last; to the run's logger, at their steps."""
    flags = "--trainer.max_steps=2 --run.keep_every_n_steps=2 --run.wandb=offline"
    home = commands.run("fit", "squad", "bert", flags, "--model.learning_rate=1e-2")
    wandb.finish()
    kept = sorted(home.glob("checkpoints/step_*"))
    assert [path.name for path in kept] == ["step_000000.ckpt", "step_000002.ckpt"]
    command = ["watch", f"m={home}", "--log", "wandb", "--", *SHIFT, "--output", f"{tmp_path}/w"]
    assert main(command) == 0
    files = [path.name for path in home.glob("wandb/offline-run-*/*.wandb")]
    assert (len(files), len({*files})) == (3, 1)
    probe = interventune.Probe(SHIFT[2], measures=["shift"], limit=4)
    for path in kept:
        export([str(path), str(tmp_path / path.stem)])
        model = AutoModelForQuestionAnswering.from_pretrained(tmp_path / path.stem)
        probed = probe.ask(model, AutoTokenizer.from_pretrained(tmp_path / path.stem))
    frame = pd.read_csv(tmp_path / "w/results.csv", dtype={"layer": str})
    frame = frame[(frame["step"] == 2) & frame["against"].isna() & (frame["embedding"] == "cls")]
    cells = frame.set_index(["measure", frame["variant"].fillna(""), "layer"])["value"]
    places = {"ts_r/mean": ("cosine", "ts_r", "last"), "start/mean": ("cosine", "", "1")}
    for key, cell in (places | {"start/cka": ("cka", "", "1")}).items():
        assert probed[f"val/shift/cls/{key}"] == pytest.approx(cells[cell], abs=1e-5)


def test_seeds_along_training(commands: Commands, tmp_path: Path, monkeypatch: Patch) -> None:
    """Of runs as a sweep leaves them: an evaluation and a watcher."""
    monkeypatch.chdir(tmp_path)
    sizes = "--data.limit_train_qa=8 --data.limit_val_qa=2 --trainer.max_steps=2"
    flags = f"{sizes} --run.keep_every_n_steps=2 --data.encoding.max_length=96 --run.version=run"
    for seed in (0, 1):
        own = f"--seed_everything={seed} --run.name=seed_everything={seed}"
        commands.run("fit", "stories_ibt", "roberta", flags, own)
    faithfulness = ["faithfulness", *SHIFT[1:5], "--variants", "os", "ts_r", "--output"]
    assert main([*faithfulness, "along", "--checkpoint", "ibt=runs/*/run"]) == 0
    assert main(["watch", "ibt=runs/*/run", "--", *faithfulness, "watched"]) == 0
    along, watched = (pd.read_csv(f"{name}/results.csv") for name in ("along", "watched"))
    pd.testing.assert_frame_equal(along, watched)
    assert {*along["step"]} == {0, 2}
    assert along["seeds"].max() == 2
