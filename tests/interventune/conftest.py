"""Tiny models as folders of transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from data_modules.encoding.tokenizers import load_tokenizer
from models.backbones import Backbone
from models.loading import load_pretrained
from tests.evaluation.checkpoints import save_folder


def save_llama(folder: Path) -> Path:
    torch.manual_seed(0)
    tiny = {"hidden_size": 32, "intermediate_size": 64, "vocab_size": 320, "attention_dropout": 0.5}
    tiny |= {"pad_token_id": 1, "eos_token_id": 2}
    backbone = Backbone(architecture="llama", checkpoint="random", tokenizer="stories", config=tiny)
    load_pretrained(backbone).save_pretrained(folder)
    load_tokenizer("stories", "llama").save_pretrained(folder)
    return folder


@pytest.fixture(scope="package")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {"bert": save_folder(root / "bert"), "llama": save_llama(root / "llama")}
