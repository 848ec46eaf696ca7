"""What training starts from: a checkpoint of ours, a Hugging Face folder or name, or random weights."""

from __future__ import annotations

import logging
from typing import Any, TypeVar

import torch

from models.backbones import Backbone, EncoderModel
from models.checkpoint import CheckpointInfo, heads_class, inspect, is_file, merged, whole
from models.pretrained import load_pretrained
from storage.errors import DataError

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

M = TypeVar("M", bound=EncoderModel)


def start(backbone: Backbone, kind: type[M], **options: Any) -> M:
    """The model that training starts from, in training mode, with an adapter where `lora_rank` asks for one.
    From a checkpoint with the same adapter that goes on; any other is merged before.

    Weights that `backbone.checkpoint` does not hold start random, from torch's global seed; `START_FROM` says
    what a checkpoint of ours gives. Of any other, encoder and span head are taken over.

    Args:
        options: of the heads, see the constructor of `kind`.

    Raises:
        DataError: nothing usable is there, or the checkpoint has heads, or options of them, from which
            this model cannot start.
    """
    if backbone.causal != (kind.heads == "causal"):
        what = f"{backbone.architecture} is {'a decoder' if backbone.causal else 'an encoder'}"
        raise DataError(f"backbone.architecture: {what}, on which {kind.heads!r} heads do not go")
    path = backbone.checkpoint
    if is_file(path):
        model = _go_on(inspect(path).require(architecture=backbone.architecture), kind, options, backbone)
    else:
        model = kind(load_pretrained(backbone), backbone.architecture, **options)
    wanted = backbone.adapter
    if model.adapter.get("rank") != wanted.get("rank"):
        merged(model)
    if wanted:
        if not model.adapter:
            from models.adapters import add_adapter, base_digest

            add_adapter(model, wanted | {"digest": base_digest(wanted["base"])})
        for weight in model.encoder.parameters() if backbone.frozen_weights == "bfloat16" else ():
            if not weight.requires_grad:
                weight.data = weight.data.to(torch.bfloat16)
    return model.train()


def _go_on(info: CheckpointInfo, kind: type[M], options: dict[str, Any], backbone: Backbone) -> M:
    """What a model starts from by `START_FROM`, with the adapter of a checkpoint of the same heads."""
    if info.heads == kind.heads:
        model = whole(info, kind, options, backbone)
        if (wanted := model.head_options) != info.head_options:
            raise DataError(f"{info.path}: heads with {info.head_options}, but {wanted} are asked for")
        return model
    if info.heads not in START_FROM[kind.heads]:
        known = " or ".join(map(repr, (kind.heads, *START_FROM[kind.heads])))
        raise DataError(
            f"{info.path}: the checkpoint has {info.heads!r} heads, from which {kind.heads!r} heads cannot "
            f"start; give one with {known} heads"
        )
    if kind.heads == "choice":
        other = merged(whole(info, heads_class(info.heads), info.head_options, backbone))
        return kind(other.encoder, info.architecture, **options)
    span = merged(whole(info, heads_class("span"), {}, backbone))
    log.info("%s: encoder and span head taken over, not the rest of its %r heads", info.path, info.heads)
    return kind(span.to_pretrained(), info.architecture, **options)
