"""The warm-up of the faithfulness paper, and which weights are decayed."""

from typing import Any

import pytest

from interventune.models.loading import load_pretrained
from interventune.training.modules.fine_tuning import decay_groups
from interventune.training.modules.qa import AnswerModule
from tests.models.tiny import backbone


def module(architecture: str = "bert", **options: Any) -> AnswerModule:
    return AnswerModule(backbone=backbone(architecture, config={"vocab_size": 400}), **options)


def test_the_papers_warm_up_does_not_shrink(caplog: pytest.LogCaptureFixture) -> None:
    for architecture, steps in (("bert", 2000), ("roberta", 2000), ("xlnet", 3000)):
        for total in (80_000, 4_000):
            assert module(architecture).warmup_steps(total) == steps
    assert not caplog.messages
    assert module("xlnet").warmup_steps(3000) == 3000
    (warning,) = caplog.messages
    assert "3000 steps" in warning
    assert "model.warmup_ratio=0.1" in warning
    assert module(warmup_ratio=0.1).warmup_steps(505) == 50
    assert module(warmup_ratio=0.1, warmup_steps=7).warmup_steps(505) == 7


OF_XLNET = {"bias", "r_w_bias", "r_r_bias", "r_s_bias"}


@pytest.mark.parametrize(
    ("architecture", "biases"), [("bert", {"bias"}), ("distilbert", {"bias"}), ("xlnet", OF_XLNET)]
)
def test_biases_and_weights_of_norms_are_not_decayed(architecture: str, biases: set[str]) -> None:
    model = load_pretrained(backbone(architecture))
    decayed, plain = decay_groups(model, 0.1)
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.1, 0.0)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    params = [group["params"] for group in (decayed, plain)]
    last = [{names[id(weight)].rpartition(".")[2] for weight in part} for part in params]
    assert biases <= last[1]
    assert not last[0] & biases
    assert {name for name in last[1] if not name.endswith("bias")} == {"weight"}  # of LayerNorm
    assert len(decayed["params"]) + len(plain["params"]) == len(names)
