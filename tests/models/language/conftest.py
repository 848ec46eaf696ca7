"""Tiny language models for all tests of this folder, opened as protocols open them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from interventune.evaluation.answering.interface import Asking
from interventune.evaluation.answering.language_model import open_text_model
from tests.data_modules.fixtures.tiny_language_models import save

CHAT = "<s> {% for m in messages %}who : {{ m['content'] }}{% endfor %} is"


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Causal and sequence-to-sequence models by name; all of gpt2 have the same weights."""
    root = tmp_path_factory.mktemp("models")
    built = {kind: save(root / kind, kind) for kind in ("gpt2", "mamba", "t5", "bart")}
    built["gpt2_unpadded"] = save(root / "gpt2_unpadded", "gpt2", padded=False)
    built["gpt2_chat"] = save(root / "gpt2_chat", "gpt2", chat=CHAT)
    built["gpt2_begins"] = save(root / "gpt2_begins", "gpt2", begins=True)
    return built


def load_text_model(
    folder: Path | str, *, max_new_tokens: int = 64, chat: Any = "auto", **how: Any
) -> Any:
    options = {"device": "cpu", "batch_size": 8, "max_new_tokens": max_new_tokens, "chat": chat}
    return open_text_model(f"hf:{folder}", Asking(**(options | how)))
