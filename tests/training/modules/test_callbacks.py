"""The score that models are selected by; the global batch, kept where it can be and told in any case."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from data_modules.groups.advice import unadvised
from data_modules.records import write_records
from data_modules.schema import ADVICE_CLASSES
from data_modules.stories.groups import groups
from tests.training.conftest import Commands
from training.callbacks.eval_sets import selection_score
from training.callbacks.run_record import global_batch, in_words, keep_global_batch
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


def trainer(nodes: int, devices: int, accumulation: int) -> Any:
    data = SimpleNamespace(
        train_set=SimpleNamespace(groups=None, qa=[], choices=None),
        qa_batch_size=16,
        groups_per_class=3,
    )
    return SimpleNamespace(world_size=nodes * devices, accumulate_grad_batches=accumulation, datamodule=data)


@given(st.integers(1, 3), st.integers(1, 8), st.integers(1, 4), st.integers(0, 16))
def test_a_step_takes_what_was_planned_or_says_so(
    nodes: int, devices: int, accumulation: int, planned: int
) -> None:
    made = trainer(nodes, devices, accumulation)
    keep_global_batch(made, planned)
    batch = global_batch(made, planned, accumulation)
    assert batch["batches_per_step"] == nodes * devices * made.accumulate_grad_batches
    wanted = (planned or 1) * accumulation
    if planned and wanted % (nodes * devices) == 0:
        assert batch["batches_per_step"] == wanted
    if not planned:
        assert made.accumulate_grad_batches == accumulation
    assert ("THE CONFIGURATION SAYS" in in_words(batch)) == (batch["batches_per_step"] != wanted)
