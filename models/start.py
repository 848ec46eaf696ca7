"""From checkpoint to checkpoint: `start` training from one, `describe` the model for the next."""

from __future__ import annotations

import logging
from typing import Any

import torch

from models.backbones import RANDOM, Backbone, EncoderModel
from models.checkpoint import FORMAT, M, inspect, is_file, merged, stored
from models.language.likelihood import reads_side_by_side
from storage.errors import DataError, as_data_error

log = logging.getLogger(__name__)
START_FROM = {
    "span": ("rationale",),
    "rationale": ("span",),
    "xlnet": ("span",),
    "choice": ("span", "rationale", "xlnet"),
    "causal": (),
}
"""Heads of checkpoints from which a model with other heads can start: it takes over the encoder and, except
for `choice`, the span head."""


def start(backbone: Backbone, kind: type[M], **options: Any) -> M:
    """Return the model to train, in training mode, with an adapter if `lora_rank` is set. An adapter of the
    same kind in the checkpoint is trained further; any other is merged first.

    Weights missing from `backbone.checkpoint` are random, from torch's global seed. `START_FROM` lists what a
    checkpoint of this project provides; any other provides encoder and span head. DataError: nothing usable
    is found, or this model cannot start from the checkpoint's heads or their options.

    Args:
        options: of the heads, see the constructor of `kind`.
    """
    from models.cpu_kernels import use_kernels  # imports transformers, needed only here

    if backbone.causal != (kind.heads == "causal"):
        what = f"{backbone.architecture} is {'a decoder' if backbone.causal else 'an encoder'}"
        raise DataError(f"backbone.architecture: {what}, on which {kind.heads!r} heads do not go")
    path, info = backbone.checkpoint, None
    if is_file(path):
        info = inspect(path).require(architecture=backbone.architecture)
        known = (kind.heads, *START_FROM[kind.heads])
        if info.heads not in known:
            raise DataError(
                f"{path}: the checkpoint has {info.heads!r} heads, from which {kind.heads!r} heads cannot "
                f"start; give one with {' or '.join(map(repr, known))} heads"
            )
    model = stored(backbone, kind, options)
    if backbone.causal and not reads_side_by_side(model.encoder):
        raise DataError(
            f"backbone: a {model.config.model_type!r} model does not read two candidates behind one prompt "
            "as it reads each alone; it can be evaluated, but not trained here"
        )
    if info and info.heads == kind.heads and model.head_options != info.head_options:
        raise DataError(f"{path}: heads with {info.head_options}, but {model.head_options} are asked for")
    if model.adapter.get("rank") != backbone.lora_rank:
        merged(model)
    if backbone.lora_rank:
        if path == RANDOM:
            log.warning("backbone.lora_rank: the random base is not trained, so the model learns little")
        if not model.adapter:
            from models.adapters import add_adapter, asked_for

            add_adapter(model, asked_for(backbone))
        for weight in model.encoder.parameters() if backbone.frozen_weights == "bfloat16" else ():
            if not weight.requires_grad:
                weight.data = weight.data.to(torch.bfloat16)
    if backbone.gradient_checkpointing:
        with as_data_error("backbone.gradient_checkpointing"):
            model.encoder.gradient_checkpointing_enable()
    use_kernels(model)
    return model.train()


def describe(model: EncoderModel, tokenizer: dict[str, str], encoding: dict[str, Any]) -> dict[str, Any]:
    """Return this project's part of a checkpoint, stored under `KEY`: plain strings, numbers, dicts."""
    return {
        "format": FORMAT,
        "architecture": model.architecture,
        "heads": model.heads,
        "head_options": model.head_options,
        "config": model.config.to_json_string(use_diff=False),
        "tokenizer": tokenizer,
        "encoding": encoding,
        "adapter": model.adapter,
    }
