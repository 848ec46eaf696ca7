"""Trained models as Hugging Face folders."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

from safetensors import SafetensorError

from models.checkpoint import load_ckpt
from models.checkpoint_file import CheckpointError
from models.heads.qa_model import QAModel

log = logging.getLogger(__name__)


def export(path: str, output: Path) -> None:
    """Write a checkpoint as a Hugging Face folder: weights, configuration, tokenizer. Of a model with
    rationale heads only encoder and span head go along, with a warning.

    Raises:
        CheckpointError: there is nothing to export, transformers has no such heads, or `output` exists.
    """
    if output.exists():
        raise CheckpointError(f"{output}: already exists; name a new folder")
    loaded = load_ckpt(Path(path))
    if not isinstance(loaded.model, QAModel):
        raise CheckpointError(
            f"{path}: the head for choices has no counterpart in transformers; use the .ckpt itself"
        )
    if loaded.model.heads == "xlnet":
        raise CheckpointError(
            f"{path}: XLNet's answer heads have no counterpart in transformers; use the .ckpt itself"
        )
    if loaded.model.heads != QAModel.heads:
        log.warning(
            "%s: transformers has no class for the %r heads; the folder gets encoder and span head only and "
            "answers neither yes, no nor unknown",
            path,
            loaded.model.heads,
        )
    staged = output.with_name(f".{output.name}.tmp")
    shutil.rmtree(staged, ignore_errors=True)  # of an export that was killed
    try:
        loaded.model.to_pretrained().save_pretrained(staged)
        assert isinstance(loaded.tokenizer, dict)
        for name, text in loaded.tokenizer.items():
            (staged / Path(name).name).write_text(text, encoding="utf-8")
        for place in (*staged.iterdir(), staged):
            _sync(place)
        staged.rename(output)
    except (OSError, SafetensorError) as error:  # which tells of a full disk in its own type
        raise CheckpointError(f"{output}: cannot be written: {' '.join(str(error).split())}") from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _sync(place: Path) -> None:
    """Have a file, or the names in a folder, on the disk before anything is renamed."""
    handle = os.open(place, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
