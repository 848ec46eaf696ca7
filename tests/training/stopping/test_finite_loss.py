"""A fit whose loss is no number ends in one line, and leaves no checkpoint that is none."""

import json
import math
import re
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from interventune.models.checkpoint import nonfinite
from interventune.training.__main__ import main
from interventune.training.modules.fine_tuning import DivergedError, FineTuning
from tests.models import tiny
from tests.training.conftest import Capture, Commands, Patch, launch, metrics_of

DIVERGES = "--model.learning_rate=1e30 --data.qa_batch_size=4"


@pytest.mark.parametrize("saving", ["", "--run.save_every_n_steps=1"])
def test_a_loss_that_is_no_number(saving: str, commands: Commands, capsys: Capture) -> None:
    assert main(commands.of("fit", "squad", "bert", DIVERGES, saving)) == 1
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("error: "))
    last = commands.root / "squad" / "version_0" / "checkpoints" / "last.ckpt"
    assert "at step" in line
    assert "learning rate of " in line
    assert (str(last) if saving else "no checkpoint was written before") in line
    assert [path.name for path in commands.root.rglob("*.ckpt")] == ["last.ckpt"] * bool(saving)
    assert not saving or not nonfinite(torch.load(last, weights_only=True)["state_dict"])
    assert not list(commands.root.rglob("metrics.json"))


def test_weights_that_are_no_numbers_are_not_saved(commands: Commands) -> None:
    """The last step spoils them, and no loss follows that would tell; their version stays free."""
    flags = "--model.learning_rate=1e38 --model.warmup_ratio=0 --trainer.max_steps=1"
    flags += " --checkpoint.save_weights_only=true --run.version=mine"
    for _ in range(2):
        with pytest.raises(DivergedError, match="weights are not finite"):
            commands.run("fit", "squad", "bert", flags)
    assert not list(commands.root.rglob("*.ckpt"))


def test_metrics_are_strict_json(commands: Commands, monkeypatch: Patch) -> None:
    metrics = "interventune.training.callbacks.run_record._metrics"
    monkeypatch.setattr(metrics, lambda trainer: {"val/qa/f1": math.nan})
    home = commands.run("fit", "squad", "bert", "--trainer.max_steps=1")
    assert metrics_of(home)["val/qa/f1"] is None
    json.loads((home / "metrics.json").read_text(), parse_constant=pytest.fail)


def test_two_processes_end_together(commands: Commands) -> None:
    command = commands.of("fit", "squad", "bert", DIVERGES, "--trainer.devices=2")
    said = launch(command, processes=2, code=1)
    assert re.search("^error: the (loss is|weights are) not finite at step", said, re.MULTILINE)
    assert not list(commands.root.rglob("*.ckpt"))


@pytest.mark.parametrize("losses", [".xxx.xxx", "..xxxx", "..x.xxxx"])
def test_only_a_whole_window_of_skipped_steps_ends_a_float16_run(losses: str) -> None:
    trainer: Any = SimpleNamespace(global_step=8, log_every_n_steps=4, log_dir="", world_size=1)
    trainer.precision_plugin = SimpleNamespace(scaler=object())
    trainer.strategy = SimpleNamespace(reduce_boolean_decision=lambda decision, all: decision)
    trainer.optimizers = [SimpleNamespace(param_groups=[{"lr": 1.0}])]
    module = FineTuning(tiny.model("bert"), learning_rate=1.0, weight_decay=0.0)
    module.trainer = trainer
    ends: Any = pytest.raises(DivergedError, match="at step 8,")
    with ends if losses[4:] == "xxxx" else nullcontext():
        for at, mark in enumerate(losses):
            value = torch.tensor(math.nan if mark == "x" else 1.0)
            module.on_train_batch_end({"loss": value}, None, at)
