"""What all training modules share: which weights are decayed."""

from __future__ import annotations

import pytest

from models.backbones import Backbone
from models.loading import load_pretrained
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
