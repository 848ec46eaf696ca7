"""The faithfulness paper's recipe, and what its authors' code does otherwise, by name."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
import torch

from data_modules.batching.data_module import TrainBatch
from data_modules.batching.sets import QASet
from data_modules.encoding.windows import Encoding
from data_modules.sources import read_questions
from tests.data_modules.fixtures.small_tokenizers import tokenizer
from tests.models.tiny import backbone
from training.modules.answers import AnswerModule

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
