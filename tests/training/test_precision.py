"""`precision: auto` is settled once: by the machine, or by the run that goes on."""

from __future__ import annotations

import json

import pytest
import torch

from tests.training.conftest import Commands
from training import precision
from training.cli import main as train


@pytest.mark.parametrize(("faster", "chosen"), [(torch.float32, "32-true"), (torch.bfloat16, "bf16-mixed")])
def test_auto_is_the_faster_one_and_stays_when_a_run_goes_on(
    faster: torch.dtype, chosen: str, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(precision.CHOSEN, "")  # so that it is forgotten afterwards
    monkeypatch.delenv(precision.CHOSEN)
    monkeypatch.setattr(precision, "products_per_second", lambda dtype: float(dtype == faster))
    fit = commands.of("fit", "squad", "bert", "--trainer.precision=auto", "--ckpt_path=auto")
    environment = commands.root / "squad" / "version_0" / "environment.json"
    train([*fit, "--trainer.max_steps=1"])
    assert json.loads(environment.read_text())["precision"] == chosen
    monkeypatch.setenv(precision.CHOSEN, "32-true" if chosen == "bf16-mixed" else "bf16-mixed")
    train([*fit, "--trainer.max_steps=2"])
    assert json.loads(environment.read_text())["precision"] == chosen
