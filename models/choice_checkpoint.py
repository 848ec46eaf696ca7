"""Models of multiple choice out of checkpoints: to ask them, and to train them further."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch

from models.backbones import Backbone
from models.checkpoint import Loaded, check_ckpt, folder_architecture, heads_in, load_ckpt, load_folder
from models.checkpoint_file import CheckpointError, read_ckpt
from models.heads.choice import ChoiceModel, Pooling
from models.heads.encoder import EncoderModel

log = logging.getLogger(__name__)

LoadedChoice = Loaded[ChoiceModel]


def load_choice(path: str) -> LoadedChoice:
    """Load a model of multiple choice: a `.ckpt` of ours; of a Hugging Face folder or a Hub name the encoder
    under a head of random weights, always the same, which is a baseline that knows nothing.

    Raises:
        CheckpointError: nothing usable is there, or it answers questions about a text.
    """
    if Path(path).is_file():
        loaded: Loaded[Any] = load_ckpt(Path(path))
        refuse_other_heads(path, loaded.model.heads)
    else:
        from transformers.utils.logging import get_verbosity, set_verbosity, set_verbosity_error

        # transformers would tell of heads that are absent or of no use: none of them is wanted here.
        told = get_verbosity()
        set_verbosity_error()
        try:
            plain = load_folder(path)
        finally:
            set_verbosity(told)
        seeded = torch.Generator().manual_seed(0)
        model = ChoiceModel(plain.model.encoder, plain.model.architecture, generator=seeded)
        loaded = Loaded(model, plain.tokenizer, plain.encoding)
    loaded.model.eval()
    return loaded


def check_choice(path: str) -> None:
    """Look at a model of multiple choice without reading its weights: a `.ckpt` of ours, a Hugging Face
    folder or a Hub name.

    Raises:
        CheckpointError: as in `load_choice`, but for damaged weights.
    """
    if Path(path).is_file():
        refuse_other_heads(path, heads_in(read_ckpt(Path(path), mmap=True)))
    else:
        folder_architecture(path)


def refuse_other_heads(path: str, heads: str) -> None:
    """CheckpointError for a checkpoint that does not choose."""
    if heads != ChoiceModel.heads:
        raise CheckpointError(
            f"{path}: the checkpoint answers questions about a text ({heads!r} heads) and cannot choose "
            "among given choices; give one that was trained by ChoiceModule (experiment multiple_choice)"
        )


def starting_choice_model(backbone: Backbone, pooling: Pooling) -> ChoiceModel:
    """The model of multiple choice that training starts from, from a `.ckpt` of ours: all of it where it is
    one, the encoder of any other.

    Raises:
        CheckpointError: it pools in another way, or see `models.checkpoint.load_qa`.
    """
    path = Path(backbone.checkpoint)
    check_ckpt(path, backbone.architecture)
    model: EncoderModel = load_ckpt(path, backbone).model
    if not isinstance(model, ChoiceModel):
        log.info("%s: encoder taken over, the head for choices starts random", path)
        model = ChoiceModel(model.encoder, model.architecture, pooling=pooling)
    elif model.pooling != pooling:
        raise CheckpointError(
            f"{path}: the checkpoint has pooling={model.pooling!r}, the configuration asks for {pooling!r} "
            "(model.pooling)"
        )
    return model.train()
