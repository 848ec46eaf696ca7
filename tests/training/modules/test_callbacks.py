"""The score that models are selected by."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from data_modules.groups.advice import unadvised
from data_modules.records import write_records
from data_modules.schema import ADVICE_CLASSES
from data_modules.stories.groups import groups
from tests.training.conftest import Commands
from training.callbacks.eval_sets import selection_score
from training.cli import main as train


def test_advice_obeyed_in_both_directions_is_best() -> None:
    def score(**mu: float) -> float:
        return selection_score(torch.tensor([mu.get(name, 0.3) for name in ADVICE_CLASSES])).item()

    assert score(ethical=0.0, adversarial=1.0) == 0
    assert score(ethical=1.0, adversarial=0.0) == 2
    assert score(ethical=0.25, adversarial=0.5, irrelevant=0.9) == 0.75


def test_validation_logs_it_where_both_classes_are_there(commands: Commands, tmp_path: Path) -> None:
    write_records(unadvised(groups("unseen")), plain := tmp_path / "plain.json")
    sets = f"{{main: {commands.data.groups_dev}, plain: '{plain}'}}"
    train(commands.of("validate", "lei_zero_shot", "roberta", f"--data.val_groups={sets}"))
    found = json.loads((commands.root / "lei_zero_shot" / "version_0" / "metrics.json").read_text())
    mu = {name: found[f"val/bias/{name}/mu"] for name in ("ethical", "adversarial")}
    assert found["val/bias/selection"] == pytest.approx((1 - mu["adversarial"]) + mu["ethical"])
    assert "val/bias/plain/none/mu" in found
    assert "val/bias/plain/selection" not in found
