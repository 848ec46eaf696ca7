"""A run that is stopped and goes on ends with the same weights and curves as one that was never disturbed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from tests.conftest import once
from tests.support.finished_runs import differences
from tests.training.conftest import SMALL, Commands, SmallData, curves, failing, launch
from training import cli as command_line
from training.__main__ import main as command
from training.cli import main as train
from training.stopping.last_checkpoint import LastCheckpoint, Stopped

Disturb = Callable[..., None]
DROPOUT = SMALL["roberta"].replace("{", "{hidden_dropout_prob: 0.1, attention_probs_dropout_prob: 0.1, ")


class Disturbance(pl.Callback):
    """Does something before a training batch, or before one of a validation; both count from 1 over the
    run."""

    def __init__(self, what: Callable[[], None], *, batch: int = 0, validation: int = 0) -> None:
        self.what, self.batch, self.validation = what, batch, validation
        self.trained = self.validated = 0

    def on_train_batch_start(self, *_: Any) -> None:
        self.trained += 1
        if self.trained == self.batch:
            self.what()

    def on_validation_batch_start(self, *_: Any) -> None:
        self.validated += 1
        if self.validated == self.validation:
            self.what()


def power_cut() -> None:
    raise RuntimeError("the power went out")


def terminated() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def interrupted() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture
def disturb(monkeypatch: pytest.MonkeyPatch) -> Disturb:
    """Let the next runs be disturbed; called without a disturbance, let them run in peace."""
    original = command_line.InterventuneCLI.instantiate_trainer

    def prepare(what: Callable[[], None] | None = None, **when: int) -> None:
        def instantiate(self: Any, **kwargs: Any) -> pl.Trainer:
            trainer = original(self, **kwargs)
            if what is not None:
                trainer.callbacks.insert(0, Disturbance(what, **when))
            return trainer

        monkeypatch.setattr(command_line.InterventuneCLI, "instantiate_trainer", instantiate)

    return prepare


def arguments(commands: Commands, version: str, *flags: str, experiment: str = "lei_few_shot") -> list[str]:
    """Fit for three epochs of four batches, with dropout, going on from what there is."""
    groups = (f"--model.reference_cache={commands.root.parent / 'cache'}", "--data.groups_per_class=2")
    return commands.of(
        *("fit", experiment, "roberta", *(groups if experiment == "lei_few_shot" else ())),
        *(f"--backbone.config={DROPOUT}", f"--run.version={version}", "--ckpt_path=auto"),
        *("--trainer.max_epochs=3", "--trainer.log_every_n_steps=1", "--model.learning_rate=1e-3"),
        *flags,
    )


def fit(commands: Commands, version: str, *flags: str, experiment: str = "lei_few_shot") -> Path:
    """Run it; its folder."""
    train(arguments(commands, version, *flags, experiment=experiment))
    return commands.root / experiment / version


@pytest.fixture
def whole(tmp_path_factory: pytest.TempPathFactory, small_data: SmallData) -> Callable[..., Path]:
    """A run that nothing disturbs; of the same flags there is one for all tests."""

    def run(*flags: str, experiment: str = "lei_few_shot") -> Path:
        with once(tmp_path_factory, " ".join((experiment, *flags))) as (folder, wanted):
            root = folder / "runs"
            if wanted:
                fit(Commands(root, small_data), "whole", *flags, experiment=experiment)
            return root / experiment / "whole"

    return run


UNWATCHED = ("--data.val_qa={}", "--data.val_groups={}")
BY_STEP = "--run.save_every_n_steps=1"
HALVES = ("--trainer.val_check_interval=0.5", "--trainer.accumulate_grad_batches=2")


@pytest.mark.parametrize(
    ("batch", "flags"),
    [
        (4, ()),
        (5, (*UNWATCHED, "--trainer.max_steps=7")),
        (8, (*UNWATCHED, "--trainer.max_steps=9", "--trainer.limit_train_batches=3")),
        (7, HALVES),
    ],
)
def test_a_failure_leaves_no_trace(
    batch: int, flags: tuple[str, ...], commands: Commands, disturb: Disturb, whole: Callable[..., Path]
) -> None:
    disturb(power_cut, batch=batch)
    with pytest.raises(RuntimeError, match="the power went out"):
        fit(commands, "cut", BY_STEP, *flags)
    disturb()
    assert_equal_runs(whole(*flags), fit(commands, "cut", BY_STEP, *flags))


@pytest.mark.parametrize(("what", "batch"), [(terminated, 9), (power_cut, 10)])
def test_the_best_checkpoint_of_before_is_kept(
    what: Callable[[], None], batch: int, commands: Commands, disturb: Disturb, whole: Callable[..., Path]
) -> None:
    """Whether the run is told to stop right after the validation that chose it, or ends within the epoch."""
    scored = "--trainer.callbacks+={class_path: tests.training.failing.Scored}"
    flags = (scored, "--checkpoint.monitor=score", "--checkpoint.mode=max")
    disturb(what, batch=batch)
    with pytest.raises((SystemExit, RuntimeError)):
        fit(commands, "cut", *flags)
    disturb()
    undisturbed = whole(*flags)
    assert torch.load(undisturbed / "checkpoints/best.ckpt", weights_only=True)["global_step"] == 8
    assert_equal_runs(undisturbed, fit(commands, "cut", *flags))


@pytest.mark.parametrize(
    ("what", "when", "flags"),
    [
        (terminated, {"batch": 1}, ()),
        (terminated, {"batch": 6}, ("--data.num_workers=2",)),
        (terminated, {"validation": 2}, ()),
        (interrupted, {"validation": 5}, HALVES),
    ],
)
def test_a_signal_finishes_the_step_and_leaves_no_trace(
    what: Callable[[], None],
    when: dict[str, int],
    flags: tuple[str, ...],
    commands: Commands,
    disturb: Disturb,
    whole: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    disturb(what, **when)
    with pytest.raises(SystemExit) as stopped:
        fit(commands, "cut", *flags)
    assert stopped.value.code == (143 if what is terminated else 130)
    (said,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("stopped at"))
    assert ("--ckpt_path auto" in said) == (commands.root / "lei_few_shot/cut/checkpoints/last.ckpt").exists()
    disturb()
    same = [flag for flag in flags if "num_workers" not in flag]
    assert_equal_runs(whole(*same), fit(commands, "cut", *flags))


def test_questions_alone_and_several_disturbances(
    commands: Commands, disturb: Disturb, whole: Callable[..., Path]
) -> None:
    flags = ("--data.qa_batch_size=8",)
    for what, batch in ((terminated, 3), (power_cut, 4), (interrupted, 2)):
        disturb(what, batch=batch)
        with pytest.raises((SystemExit, RuntimeError)):
            fit(commands, "cut", BY_STEP, *flags, experiment="squad")
    disturb()
    undisturbed = whole(*flags, experiment="squad")
    assert_equal_runs(undisturbed, fit(commands, "cut", BY_STEP, *flags, experiment="squad"))


def test_kill_9_leaves_a_whole_checkpoint(commands: Commands, whole: Callable[..., Path]) -> None:
    kill = failing(where="batch", rank=0, kind="SIGKILL", batch=7)
    code, said = launch(arguments(commands, "cut", BY_STEP, kill))
    assert code == -signal.SIGKILL, said[-2000:]
    assert_equal_runs(whole(), fit(commands, "cut", BY_STEP))


def test_processes_that_a_stop_has_killed_are_not_watched_any_more() -> None:
    """Lightning's watch over them, every five seconds, would take their end for a failure."""
    child = subprocess.Popen(["sleep", "60"])
    watched = [child]
    launcher = SimpleNamespace(procs=watched)
    strategy = SimpleNamespace(launcher=launcher)
    trainer: Any = SimpleNamespace(strategy=strategy, is_global_zero=True, global_step=3)
    callback = LastCheckpoint(every_n_steps=0, every_minutes=0)
    callback.on_exception(trainer, pl.LightningModule(), Stopped(signal.SIGTERM))
    assert child.wait(10) == -signal.SIGKILL
    assert watched == []


def test_the_same_command_starts_goes_on_and_rests(commands: Commands) -> None:
    home = fit(commands, "version_0", "--trainer.max_epochs=1")
    before = (home / "metrics.json").read_text()
    weights = torch.load(home / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    (home / "metrics.json").unlink()
    fit(commands, "", "--trainer.max_epochs=1")  # finished: nothing happens, nothing is lost
    assert (home / "metrics.json").read_text() == before
    again = torch.load(home / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    assert all(torch.equal(weights[key], again[key]) for key in weights)
    assert not (home.parent / "version_1").exists()


def test_a_version_killed_before_its_first_checkpoint_is_started_over(commands: Commands) -> None:
    left = commands.root / "lei_few_shot" / "mine"
    left.mkdir(parents=True)
    (left / "config.yaml").write_text("seed_everything: 1\n")
    (left / "metrics.csv").write_text("step,epoch,metric,value\n0,0,train/loss/total,77.0\n")
    home = fit(commands, "mine", "--trainer.max_epochs=1")
    assert home == left
    assert 77.0 not in [value for _, value in curves(home, "train/loss/total")]


def test_an_unreadable_checkpoint_is_named(
    commands: Commands, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = fit(commands, "mine", "--trainer.max_epochs=1")
    last = home / "checkpoints" / "last.ckpt"
    last.write_bytes(last.read_bytes()[:-2000])
    monkeypatch.setattr(sys, "argv", ["training", *arguments(commands, "mine")])
    assert command() == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
    assert str(last) in line


def test_a_best_checkpoint_goes_on_too(commands: Commands) -> None:
    flags = ("--trainer.max_epochs=1", "--checkpoint.monitor=val/qa/f1")
    home = fit(commands, "first", *flags)
    best = home / "checkpoints" / "best.ckpt"
    assert best.exists()
    gone_on = fit(commands, "second", "--trainer.max_epochs=2", f"--ckpt_path={best}")
    first, second = (len(curves(run, "train/loss/total")) for run in (home, gone_on))
    assert first == second


def assert_equal_runs(one: Path, other: Path) -> None:
    """Bit for bit: weights, optimizer, schedule, metrics and curves."""
    assert not list(differences(one, other))
