"""Where tokenizers come from: the Hub, a folder, the files inside a checkpoint, or the embedded words."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

from storage.errors import DataError, as_data_error
from storage.files import read_archive


def load_tokenizer(source: str | dict[str, str], architecture: str = "") -> Any:
    """Load a fast tokenizer of transformers from a Hub name, a folder, this project's `.ckpt`, `stories`
    (which needs an architecture), or tokenizer files given as text by name. Code from a folder or the Hub
    is never run.

    Raises:
        DataError: nothing usable is found, or the tokenizer is not fast (offsets are needed).
    """
    if source == "stories":
        from data_modules.stories.questions import vocabulary
        from data_modules.stories.word_tokenizer import build_tokenizer

        return build_tokenizer(architecture, vocabulary())
    where = source if isinstance(source, str) else "the checkpoint"
    if where.endswith(".ckpt"):
        content = read_archive(where, mmap=True)  # memory-mapped, so that the weights are not read
        with as_data_error(f"{where}: no tokenizer in this checkpoint"):
            source = dict(content["interventune"]["tokenizer"])
    if isinstance(source, str):
        return _pretrained(source, f"tokenizer {source!r}")
    with tempfile.TemporaryDirectory() as folder:
        for name, text in source.items():
            Path(folder, Path(name).name).write_text(text, encoding="utf-8")
        return _pretrained(folder, f"the tokenizer inside {where}")


def _pretrained(source: str, what: str) -> Any:
    from transformers import AutoTokenizer

    with as_data_error(what):
        return usable(AutoTokenizer.from_pretrained(source, trust_remote_code=False), what)


def usable(tokenizer: Any, what: str) -> Any:
    """Return the tokenizer, with a padding token; DataError if it has no offsets or no vocabulary."""
    if not getattr(tokenizer, "is_fast", False):
        raise DataError(f"{what}: a fast tokenizer is needed (character offsets)")
    if not set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens):
        # transformers 5 makes such a tokenizer for a folder without one: every word is unknown.
        raise DataError(f"{what}: has no vocabulary; add the tokenizer's files, or name another tokenizer")
    if tokenizer.pad_token is None and tokenizer.eos_token is not None:
        tokenizer.pad_token = tokenizer.eos_token  # decoders often have none; masks hide it
    return tokenizer


def tokenizer_files(tokenizer: Any) -> dict[str, str]:
    """Return the tokenizer's files as text by name, to be stored in a checkpoint."""
    # They would include the settings of its last call; transformers sets these in every call anyway.
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        files = sorted(path for path in Path(folder).iterdir() if path.suffix in (".json", ".txt", ".jinja"))
        return {path.name: path.read_text(encoding="utf-8") for path in files}


def tokenizer_id(tokenizer: Any) -> str:
    """Return an id that changes with a folder's tokenizer: part of the cache keys of its model's results."""
    return hashlib.sha256(json.dumps(tokenizer_files(tokenizer)).encode()).hexdigest()[:16]
