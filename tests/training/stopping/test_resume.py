"""A run that is stopped and resumed ends with the weights and curves of an undisturbed one."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from interventune.training.cli import main as train
from tests.conftest import once
from tests.mistakes.conftest import refused
from tests.support.finished_runs import differences, same
from tests.training.conftest import DROPOUT, Capture, Commands, SmallData, curves, failing, launch

Runs = Callable[..., Path]
LEI = "lei_few_shot"
ENDS = {"bug": KeyError, "SIGTERM": SystemExit, "SIGINT": SystemExit}
BY_STEP = "--run.save_every_n_steps=1"
HALVES = "--trainer.val_check_interval=0.5 --trainer.accumulate_grad_batches=2"
NINE = "--data.val_qa={} --data.val_groups={} --trainer.max_steps=9 --trainer.limit_train_batches=3"


def arguments(commands: Commands, version: str, *flags: str, experiment: str = LEI) -> list[str]:
    """Fit for three epochs of four batches, with dropout, going on from what there is."""
    common = f"{DROPOUT} --run.version={version} --ckpt_path=auto"
    common += " --trainer.max_epochs=3 --trainer.log_every_n_steps=1 --model.learning_rate=1e-3"
    common += " --data.groups_per_class=2" * (experiment == LEI)
    return commands.of("fit", experiment, "roberta", common, *flags)


def fit(commands: Commands, version: str, *flags: str, experiment: str = LEI) -> Path:
    """Run it; its folder."""
    train(arguments(commands, version, *flags, experiment=experiment))
    return commands.root / experiment / version


def cut(commands: Commands, *flags: str, experiment: str = LEI, **how: Any) -> int:
    """Run it until it is disturbed; its exit code."""
    with pytest.raises(ENDS[how["kind"]]) as end:
        fit(commands, "cut", *flags, failing(**how), experiment=experiment)
    return int(getattr(end.value, "code", 0))


@pytest.fixture
def whole(tmp_path_factory: pytest.TempPathFactory, small_data: SmallData) -> Runs:
    """A run that nothing disturbs; of the same flags there is one for all tests."""

    def run(*flags: str, experiment: str = LEI) -> Path:
        name = " ".join((experiment, *filter(None, flags)))
        with once(tmp_path_factory, name) as (folder, first):
            if first:
                fit(Commands(folder / "runs", small_data), "whole", *flags, experiment=experiment)
            return folder / "runs" / experiment / "whole"

    return run


@pytest.mark.parametrize(("batch", "flags"), [(4, ""), (8, NINE), (7, HALVES)])
def test_a_failure_leaves_no_trace(batch: int, flags: str, commands: Commands, whole: Runs) -> None:
    cut(commands, BY_STEP, flags, kind="bug", batch=batch)
    assert_equal_runs(whole(flags), fit(commands, "cut", BY_STEP, flags))


@pytest.mark.parametrize(("kind", "batch"), [("SIGTERM", 9), ("bug", 10)])
def test_the_best_checkpoint_stays(kind: str, batch: int, commands: Commands, whole: Runs) -> None:
    """A signal after the validation that chose it, or later; with a user's ModelCheckpoint."""
    scored = "--trainer.callbacks+={class_path: tests.training.callbacks.Scored}"
    other = "{class_path: ModelCheckpoint, init_args: {monitor: val/qa/f1, filename: other}}"
    flags = f"{scored} --trainer.callbacks+={other}"
    flags += " --checkpoint.monitor=score --checkpoint.mode=max"
    cut(commands, flags, kind=kind, batch=batch)
    undisturbed = whole(flags)
    metrics = json.loads((undisturbed / "metrics.json").read_text())
    assert (metrics["score"], metrics["best/score"]) == pytest.approx((0.5, 0.9))
    assert torch.load(undisturbed / "checkpoints/best.ckpt", weights_only=True)["global_step"] == 8
    assert_equal_runs(undisturbed, fit(commands, "cut", flags))


@pytest.mark.parametrize(
    ("how", "flags", "changed"),
    [
        ({"kind": "SIGTERM", "batch": 1}, "", ""),
        ({"kind": "SIGTERM", "batch": 6}, "", "--data.num_workers=2"),
        ({"kind": "SIGINT", "at": "validation", "batch": 5}, HALVES, ""),
    ],
)
def test_a_signal_finishes_the_step_and_leaves_no_trace(
    how: Any, flags: str, changed: str, commands: Commands, whole: Runs, capsys: Capture
) -> None:
    code = cut(commands, flags, changed, **how)
    assert code == 128 + signal.Signals[how["kind"]]
    (line,) = (x for x in capsys.readouterr().err.splitlines() if x.startswith("stopped at"))
    last = commands.root / "lei_few_shot/cut/checkpoints/last.ckpt"
    assert ("--ckpt_path auto" in line) == last.exists()
    assert_equal_runs(whole(flags), fit(commands, "cut", flags, changed))


def test_several_disturbances(commands: Commands, whole: Runs) -> None:
    flags = "--data.qa_batch_size=8"
    for kind, batch in (("SIGTERM", 3), ("bug", 4), ("SIGINT", 2)):
        cut(commands, BY_STEP, flags, experiment="squad", kind=kind, batch=batch)
    undisturbed = whole(flags, experiment="squad")
    assert_equal_runs(undisturbed, fit(commands, "cut", BY_STEP, flags, experiment="squad"))


def test_kill_9_leaves_a_whole_checkpoint(commands: Commands, whole: Runs) -> None:
    killed = arguments(commands, "cut", BY_STEP, failing(kind="SIGKILL", batch=7))
    launch(killed, code=-signal.SIGKILL)
    assert_equal_runs(whole(), fit(commands, "cut", BY_STEP))


def test_the_same_command_starts_goes_on_and_rests(commands: Commands) -> None:
    """Also in the folder of a run that was killed before its config.yaml was written."""
    left = commands.root / "lei_few_shot" / "mine"
    for name in ("checkpoints/.last.ckpt.7.tmp", ".config.yaml.7.tmp", ".lock"):
        (left / name).parent.mkdir(parents=True, exist_ok=True)
        (left / name).touch()
    (left / "metrics.csv").write_text("step,epoch,metric,value\n1,0,train/loss/total,77.0\n")
    home = fit(commands, "mine", "--trainer.max_epochs=1")
    assert yaml.safe_load((home / "config.yaml").read_text())["seed_everything"] == 0
    assert 77.0 not in [value for _, value in curves(home, "train/loss/total")]
    before, last = (home / "metrics.json").read_text(), home / "checkpoints" / "last.ckpt"
    weights = torch.load(last, weights_only=True)["state_dict"]
    (home / "metrics.json").unlink()
    fit(commands, "", "--trainer.max_epochs=1")  # finished: nothing happens, nothing is lost
    assert (home / "metrics.json").read_text() == before
    assert same(weights, torch.load(last, weights_only=True)["state_dict"])
    assert [path.name for path in home.parent.iterdir()] == ["mine"]
    last.write_bytes(last.read_bytes()[:-2000])
    refused("training", arguments(commands, "mine"), str(last))


def assert_equal_runs(one: Path, other: Path) -> None:
    """Bit for bit: weights, optimizer, schedule, metrics and curves."""
    assert not list(differences(one, other))
