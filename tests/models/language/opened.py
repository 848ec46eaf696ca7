"""A language model of a folder, as protocols open it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evaluation.answering.asking import Compute
from evaluation.answering.language_model import open_text_model


def load_text_model(
    folder: Path | str,
    *,
    max_new_tokens: int = 64,
    batch_size: int = 8,
    dtype: Any = "auto",
    chat: Any = "auto",
) -> Any:
    compute = Compute(device="cpu", dtype=dtype, batch_size=batch_size)
    return open_text_model(f"hf:{folder}", compute, max_new_tokens=max_new_tokens, chat=chat)
