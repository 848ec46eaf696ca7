"""What users get wrong in a run among others; wrong flags, files and checkpoints are in tests/malformed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.evaluation.checkpoints import save_ckpt
from tests.training.conftest import Commands
from training.__main__ import main as command


def fails(arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "argv", ["training", *arguments])
    try:
        code = command()
    except SystemExit as stop:
        code = stop.code  # type: ignore[assignment]
    assert code == 2
    text = capsys.readouterr().err
    assert "Traceback" not in text
    return text


def test_a_version_that_holds_another_run(
    commands: Commands, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = commands.root / "lei_few_shot" / "mine" / "config.yaml"
    taken.parent.mkdir(parents=True)
    taken.write_text("seed_everything: 1\n")
    text = fails(commands.of("fit", "lei_few_shot", "roberta", "--run.version=mine"), capsys, monkeypatch)
    assert "another run" in text
    assert taken.read_text() == "seed_everything: 1\n"


def test_a_checkpoint_of_another_architecture(
    commands: Commands, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ckpt = save_ckpt(tmp_path / "bert.ckpt")
    text = fails(commands.of("validate", "squad", "xlnet", f"--ckpt_path={ckpt}"), capsys, monkeypatch)
    assert "'bert'" in text
    assert "'xlnet'" in text


@pytest.mark.parametrize("experiment", ["squad", "squad_ot"])
def test_groups_alone_teach_no_answers(
    experiment: str,
    commands: Commands,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = "--data=data_modules.groups_data.GroupsDataModule"
    groups = f"--data.train_groups=[{commands.data.groups_train}]"
    arguments = commands.of("fit", experiment, "bert", data, groups, "--data.train_qa=")
    assert "data.train_qa" in fails(arguments, capsys, monkeypatch)


@pytest.mark.parametrize("start", [("fit", "-c"), ("fit", "--config"), ("sweep",)])
def test_a_pipe_is_no_configuration(
    start: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody writes into it: to read it would wait for ever."""
    os.mkfifo(tmp_path / "pipe.yaml")
    assert command([*start, str(tmp_path / "pipe.yaml")]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path}/pipe.yaml: is a pipe; name a file\n"
