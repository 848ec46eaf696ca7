"""Training goes from checkpoint to checkpoint: `start` a model from one, `describe` it in the next."""

from __future__ import annotations

import logging
from typing import Any

import torch

from models.backbones import RANDOM, Backbone, EncoderModel
from models.checkpoint import FORMAT, M, inspect, is_file, merged, stored
from storage.errors import DataError, as_data_error

log = logging.getLogger(__name__)
START_FROM = {
    "span": ("rationale",),
    "rationale": ("span",),
    "xlnet": ("span",),
    "choice": ("span", "rationale", "xlnet"),
    "causal": (),
}
"""Heads of checkpoints from which a model with others can start: it takes over the encoder and, but for
`choice`, the span head."""


def start(backbone: Backbone, kind: type[M], **options: Any) -> M:
    """The model that training starts from, in training mode, with an adapter where `lora_rank` asks for one.
    From a checkpoint with the same adapter that goes on; any other is merged before.

    Weights that `backbone.checkpoint` does not hold start random, from torch's global seed; `START_FROM` says
    what a checkpoint of ours gives. Of any other, encoder and span head are taken over. DataError: nothing
    usable is there, or the checkpoint has heads, or options of them, from which this model cannot start.

    Args:
        options: of the heads, see the constructor of `kind`.
    """
    from models.cpu_kernels import use_kernels  # imports transformers, which a configuration does without

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
    """Our part of a checkpoint, to be stored under `KEY`: plain strings, numbers and dicts."""
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
