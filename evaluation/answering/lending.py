"""A model in training as an answerer."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from interventune.data_modules.encoding.tokenizers import usable
from interventune.models.loading import from_pretrained

from .checkpoint import QuestionCheckpoint
from .interface import Asking, Choosing
from .language_model import Decoder


@contextmanager
def lent(model: Any, tokenizer: Any, asking: Asking) -> Iterator[QuestionCheckpoint]:
    """Wrap a transformers model in training, causal or with span answers, as the answerer that its
    saved folder would be. Within the context, it is in evaluation mode and the precision of its
    weights; afterwards, it and the random state are restored. ValueError for another kind of model
    or tokenizer, or if they do not fit.
    """
    name = model.name_or_path or type(model).__name__
    head = model.get_output_embeddings()
    layer = type(head)
    devices = [model.device] if model.device.type == "cuda" else []
    with torch.random.fork_rng(devices), unchanged(model):
        try:
            if hasattr(model, "_original_forward"):  # accelerate's wrapper for mixed precision
                model.__dict__.pop("forward", None)
            own = from_pretrained(model.eval(), name)
            held = own, usable(tokenizer, name, own.architecture), dict[str, Any]()
            kind = Decoder if own.heads == "causal" else QuestionCheckpoint
            yield kind(name, Choosing(**vars(asking)), held)
        finally:
            if head is not None:
                head.__class__ = layer  # a causal model computes it in float32


@contextmanager
def unchanged(model: Any) -> Iterator[None]:
    """After this context, all modules have the attributes, buffers and hooks that they
    had before.
    """
    own = [vars(part) for part in model.modules()]
    held = [value for values in own for value in values.values() if isinstance(value, dict)]
    before = [(values, values.copy()) for values in (*own, *held)]
    try:
        yield
    finally:
        for values, earlier in before:
            values.clear()
            values.update(earlier)
