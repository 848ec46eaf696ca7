"""metrics.json and what `fit`, `validate` and `test` print of it."""

from __future__ import annotations

import pytest

from tests.training.conftest import Commands, curves, metrics_of


def test_what_max_steps_ends_is_validated_each_time(
    commands: Commands, capsys: pytest.CaptureFixture[str]
) -> None:
    fit = ("fit", "squad", "bert", "--ckpt_path=auto", "--data.qa_batch_size=4")
    home = commands.run(*fit, "--trainer.max_steps=3")
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"run: {home}, 3 steps; best.ckpt: val/qa/f1 ")
    commands.run(*fit, "--trainer.max_steps=6", "--trainer.max_epochs=2")
    assert [step for step, _ in curves(home, "val/qa/f1")] == [2, 5]
    assert metrics_of(home)["step"] == 6


def test_a_test_adds_to_the_metrics_of_its_run(
    commands: Commands, capsys: pytest.CaptureFixture[str]
) -> None:
    here = "--run.version=lr[1e-4]"  # a version's name is no pattern
    home = commands.run("fit", "squad", "bert", "--trainer.max_steps=2", here)
    before = metrics_of(home)
    capsys.readouterr()
    sets = f"--data.test_qa.main={commands.data.qa_dev}"
    commands.run("test", "squad", "bert", sets, "--ckpt_path=last", here)
    after = metrics_of(home)
    assert {key: after[key] for key in before} == before
    assert after["test/qa/f1"] == pytest.approx(before["val/qa/f1"], abs=1e-6)
    assert "test/qa/n 13" in capsys.readouterr().out.splitlines()


def test_nothing_goes_on_from_weights_alone(commands: Commands) -> None:
    fit = ("fit", "squad", "bert", "--checkpoint.save_weights_only=true")
    home = commands.run(*fit, "--trainer.max_steps=2")
    with pytest.raises(ValueError, match=r"--backbone\.checkpoint"):
        commands.run(*fit, "--trainer.max_steps=4", f"--ckpt_path={home}/checkpoints/best.ckpt")
