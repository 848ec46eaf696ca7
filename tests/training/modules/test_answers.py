"""The faithfulness paper's recipe, what its authors' code does otherwise, and which weights are decayed."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
import torch

from data_modules.batching.data_module import TrainBatch
from data_modules.batching.sets import QASet
from data_modules.encoding.windows import Encoding
from data_modules.sources import read_questions
from models.loading import load_pretrained
from tests.data_modules.fixtures.small_tokenizers import tokenizer
from tests.models.tiny import backbone
from training.modules.answers import AnswerModule
from training.modules.fine_tuning import decay_groups

ENCODING = Encoding(max_length=160)


def module(architecture: str = "bert", **options: Any) -> AnswerModule:
    torch.manual_seed(0)
    return AnswerModule(backbone=backbone(architecture, config={"vocab_size": 400}), **options)


def losses(monkeypatch: pytest.MonkeyPatch, **options: Any) -> dict[str, float]:
    """What one batch of embedded conversations costs."""
    words, logged = tokenizer("words_bert"), {}
    data = QASet(list(islice(read_questions("stories:mixed_dev"), 6)), words, ENCODING)
    built = module(**options).eval()
    monkeypatch.setattr(AnswerModule, "encoding", ENCODING)
    monkeypatch.setattr(built, "log", lambda name, value, **_: logged.update({name: float(value)}))
    built.training_step(TrainBatch(qa=data[[0, 1, 2, 3]]), 0)
    return logged


def test_tagged_tokens_are_the_storys_or_all(monkeypatch: pytest.MonkeyPatch) -> None:
    story, every = (losses(monkeypatch, tagged=tagged) for tagged in ("story", "all"))
    assert losses(monkeypatch) == story
    assert story["train/loss/answer"] != every["train/loss/answer"]
    for found in (story, every):
        total = found["train/loss/answer"] + 5 * found["train/loss/rationale"]
        assert found["train/loss/total"] == pytest.approx(total, rel=1e-5)


def test_the_papers_warm_up_does_not_shrink(caplog: pytest.LogCaptureFixture) -> None:
    for architecture, steps in (("bert", 2000), ("roberta", 2000), ("xlnet", 3000)):
        assert {module(architecture).warmup_steps(total) for total in (80_000, 20_000, 4_000)} == {steps}
    assert not caplog.messages
    assert module("xlnet").warmup_steps(3000) == 3000
    (warning,) = caplog.messages
    assert "3000 steps" in warning
    assert "model.warmup_ratio=0.1" in warning
    assert module(warmup_ratio=0.1).warmup_steps(505) == 50
    assert module(warmup_ratio=0.1, warmup_steps=7).warmup_steps(505) == 7


@pytest.mark.parametrize(
    ("architecture", "undecayed_only"),
    [("bert", {"bias"}), ("distilbert", {"bias"}), ("xlnet", {"bias", "r_w_bias", "r_r_bias", "r_s_bias"})],
)
def test_biases_and_normalisation_weights_are_not_decayed(
    architecture: str, undecayed_only: set[str]
) -> None:
    model = load_pretrained(backbone(architecture))
    decayed, plain = decay_groups(model, 0.1)
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.1, 0.0)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    last = [{names[id(p)].rsplit(".", 1)[-1] for p in group["params"]} for group in (decayed, plain)]
    assert undecayed_only <= last[1]
    assert not last[0] & undecayed_only
    assert {name for name in last[1] if not name.endswith("bias")} == {"weight"}  # of LayerNorm
    assert len(decayed["params"]) + len(plain["params"]) == len(names)
