"""What all training modules share: which weights are decayed, and which terms of a loss are logged."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from data_modules.records import write_records
from data_modules.stories import groups as story_groups
from models.backbones import Backbone
from models.pretrained import load_pretrained
from tests.training.conftest import Commands, logged
from training.cli import main as train
from training.modules.fine_tuning import decay_groups


@pytest.mark.parametrize(
    ("architecture", "undecayed_only"),
    [("bert", {"bias"}), ("distilbert", {"bias"}), ("xlnet", {"bias", "r_w_bias", "r_r_bias", "r_s_bias"})],
)
def test_biases_and_normalisation_weights_are_not_decayed(
    architecture: str, undecayed_only: set[str]
) -> None:
    backbone = Backbone(architecture=architecture, checkpoint="random", config={"vocab_size": 320})  # type: ignore[arg-type]
    model = load_pretrained(backbone)
    decayed, plain = decay_groups(model, 0.1)
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.1, 0.0)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    last = [{names[id(p)].rsplit(".", 1)[-1] for p in group["params"]} for group in (decayed, plain)]
    assert undecayed_only <= last[1]
    assert not last[0] & undecayed_only
    assert {name for name in last[1] if not name.endswith("bias")} == {"weight"}  # of LayerNorm
    assert len(decayed["params"]) + len(plain["params"]) == len(names)


def test_a_class_without_groups_has_no_loss(commands: Commands, tmp_path: Path) -> None:
    trained = (group for group in story_groups.groups("train") if group.advice_class != "irrelevant")
    write_records(islice(trained, 12), tmp_path / "two.json")
    data = (f"--data.train_groups=[{tmp_path / 'two.json'}]", f"--model.reference_cache={tmp_path}")
    steps = ("--trainer.max_steps=1", "--trainer.log_every_n_steps=1")
    train(commands.of("fit", "lei_few_shot", "bert", *data, *steps))
    names = logged(commands.root / "lei_few_shot" / "version_0")
    assert "train/loss/ethical" in names
    assert "train/loss/irrelevant" not in names
