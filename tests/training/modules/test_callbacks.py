"""The score that models are selected by."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from data_modules.groups.advice import unadvised
from data_modules.schema.spans import write_records
from data_modules.stories.groups import groups
from tests.training.conftest import Commands
from training.cli import main as train


def test_validation_logs_it_where_both_classes_are_there(commands: Commands, tmp_path: Path) -> None:
    write_records(unadvised(groups("unseen")), plain := tmp_path / "plain.json")
    sets = f"{{main: {commands.data.groups_dev}, plain: '{plain}'}}"
    train(commands.of("validate", "lei_zero_shot", "roberta", f"--data.val_groups={sets}"))
    found = json.loads((commands.root / "lei_zero_shot" / "version_0" / "metrics.json").read_text())
    mu = {name: found[f"val/bias/{name}/mu"] for name in ("ethical", "adversarial")}
    assert found["val/bias/selection"] == pytest.approx((1 - mu["adversarial"]) + mu["ethical"])
    assert "val/bias/plain/none/mu" in found
    assert "val/bias/plain/selection" not in found
