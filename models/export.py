"""Trained models as Hugging Face folders."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import cast

from safetensors import SafetensorError

from models.backbones import ArchitectureName, Backbone, CheckpointError
from models.checkpoint import inspect, start
from models.heads.span import SpanModel
from storage.files import sync

log = logging.getLogger(__name__)


def export(path: str, output: Path) -> None:
    """Write a checkpoint as a Hugging Face folder: weights, configuration, tokenizer. Of a model with
    rationale heads only encoder and span head go along, with a warning.

    Raises:
        CheckpointError: there is nothing to export, transformers has no such heads, or `output` exists.
    """
    if output.exists():
        raise CheckpointError(f"{output}: already exists; name a new folder")
    info = inspect(path)
    if not isinstance(info.tokenizer, dict):
        raise CheckpointError(f"{path}: is no checkpoint file of python -m training")
    if info.heads not in ("span", "rationale"):
        raise CheckpointError(
            f"{path}: {info.heads!r} heads have no counterpart in transformers; use the .ckpt itself"
        )
    if info.heads != SpanModel.heads:
        log.warning(
            "%s: transformers has no class for the %r heads; the folder gets encoder and span head only and "
            "answers neither yes, no nor unknown",
            path,
            info.heads,
        )
    model = start(
        Backbone(architecture=cast(ArchitectureName, info.architecture), checkpoint=path), SpanModel
    )
    staged = output.with_name(f".{output.name}.tmp")
    shutil.rmtree(staged, ignore_errors=True)  # of an export that was killed
    try:
        model.to_pretrained().save_pretrained(staged)
        for name, text in info.tokenizer.items():
            (staged / Path(name).name).write_text(text, encoding="utf-8")
        for place in (*staged.iterdir(), staged):
            sync(place)
        staged.rename(output)
    except (OSError, SafetensorError) as error:  # which tells of a full disk in its own type
        raise CheckpointError(f"{output}: cannot be written: {' '.join(str(error).split())}") from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)
