"""torch.compile as an option: the same names of weights, and (compiled to nothing) the same values."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.training.conftest import Commands
from tests.training.stopping.test_resume import assert_equal_runs, fit
from training.cli import main as train


def test_checkpoints_do_not_know_of_it(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[bool] = []
    original = torch.nn.Module.compile

    def counted(module: torch.nn.Module, dynamic: bool) -> None:
        compiled.append(dynamic)
        original(module, dynamic=dynamic)

    monkeypatch.setattr(torch.nn.Module, "compile", counted)
    plain = fit(commands, "plain", "--trainer.max_epochs=1")
    assert compiled == []
    with torch.compiler.set_stance("force_eager"):
        home: Path = fit(commands, "compiled", "--trainer.max_epochs=1", "--run.compile=true")
    assert compiled == [True]
    assert_equal_runs(plain, home)
    last = home / "checkpoints" / "last.ckpt"
    train(commands.of("validate", "lei_few_shot", "roberta", f"--ckpt_path={last}", "--run.version=again"))
