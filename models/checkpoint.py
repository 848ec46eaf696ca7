"""Read and write trained models: our own `.ckpt` files and Hugging Face folders.

A `.ckpt` is a Lightning checkpoint that also carries, under one key, the architecture, the transformers
configuration, the tokenizer's files and how text was encoded. It loads with `weights_only=True` and needs
neither the Hub nor the experiment's configuration.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from models.backbones import ARCHITECTURES, Backbone, BackboneError, apply_settings, build
from models.checkpoint_file import FORMAT, KEY, CheckpointError, read_ckpt
from models.heads.answer_model import MODELS, AnswerQAModel
from models.heads.choice import ChoiceModel
from models.heads.encoder import EncoderModel
from models.heads.qa_model import QAModel

log = logging.getLogger(__name__)

EVERY_MODEL: dict[str, Callable[..., EncoderModel]] = {**MODELS, ChoiceModel.heads: ChoiceModel}
"""As `MODELS`, with the model that answers no question about a text but chooses."""

M = TypeVar("M", bound=EncoderModel)


@dataclass(frozen=True, slots=True)
class Loaded(Generic[M]):
    """A model in evaluation mode, with what is needed to feed it."""

    model: M
    tokenizer: dict[str, str] | str
    """The tokenizer's files by name, or the folder or Hub name that holds them."""
    encoding: dict[str, Any]
    """Options of the text encoding that the model was trained with; empty if the checkpoint does not say."""


LoadedQA = Loaded[QAModel]


def describe(
    model: EncoderModel, tokenizer_files: dict[str, str], encoding: dict[str, Any]
) -> dict[str, Any]:
    """Our part of a checkpoint: plain strings, numbers and dicts."""
    return {
        "format": FORMAT,
        "architecture": model.architecture,
        "heads": model.heads,
        "head_options": model.head_options,
        "config": model.config.to_json_string(use_diff=False),
        "tokenizer": tokenizer_files,
        "encoding": encoding,
    }


def load_qa(path: str, *, architecture: str = "") -> LoadedQA:
    """Load a model that answers questions about a text: a `.ckpt` of ours, a Hugging Face folder, or a Hub
    name.

    Args:
        path: where the checkpoint is.
        architecture: demand this architecture; empty accepts any row of the table.

    Raises:
        CheckpointError: nothing usable is there; the message names the path and the reason.
    """
    loaded = load_ckpt(Path(path)) if Path(path).is_file() else load_folder(path)
    if not isinstance(loaded.model, QAModel):
        raise CheckpointError(
            f"{path}: the checkpoint chooses among given choices ({loaded.model.heads!r} heads) and "
            "answers no question about a text; give one that was trained by QAModule or AnswerModule"
        )
    if architecture and loaded.model.architecture != architecture:
        raise CheckpointError(
            f"{path}: the checkpoint is of architecture {loaded.model.architecture!r}, not {architecture!r}"
        )
    loaded.model.eval()
    return loaded


def require_heads(model: QAModel, path: str) -> AnswerQAModel:
    """`model` itself, if it can answer yes, no and unknown.

    Raises:
        CheckpointError: it is a plain span model.
    """
    if not isinstance(model, AnswerQAModel):
        raise CheckpointError(
            f"{path}: the checkpoint has no answer-type heads (it was trained by QAModule); "
            "give one that was trained by AnswerModule, which also answers yes, no and unknown"
        )
    return model


def check_ckpt(path: Path, architecture: str, heads: str = "") -> int:
    """Look at a checkpoint without reading its weights; returns its training step.

    Args:
        path: a `.ckpt` of ours.
        architecture: demand this one.
        heads: demand these; empty accepts any.

    Raises:
        CheckpointError: it is missing, truncated, not ours, or of another architecture or other heads.
    """
    checkpoint = read_ckpt(path, mmap=True)
    found = checkpoint[KEY]["architecture"]
    if found != architecture:
        raise CheckpointError(
            f"{path}: the checkpoint is of architecture {found!r}, "
            f"the configuration asks for {architecture!r}"
        )
    if heads and (its := heads_in(checkpoint)) != heads:
        raise CheckpointError(
            f"{path}: the checkpoint has {its!r} heads, the configuration asks for {heads!r}"
        )
    return int(checkpoint["global_step"])


def starting_model(backbone: Backbone) -> QAModel:
    """The plain span model that training starts from: a `.ckpt` of ours, or whatever `QAModel.from_backbone`
    takes. Of a checkpoint with rationale heads, the encoder and the span head are taken over.

    Raises:
        CheckpointError, BackboneError: see `load_qa` and `models.backbones.load_pretrained`; also when the
            checkpoint has XLNet's answer heads, which no span head can be made of.
    """
    path = Path(backbone.checkpoint)
    if path.suffix != ".ckpt":
        return QAModel.from_backbone(backbone)
    check_ckpt(path, backbone.architecture)
    found = heads_in(read_ckpt(path, mmap=True))
    if found == "xlnet":
        raise CheckpointError(
            f"{path}: the checkpoint has 'xlnet' heads, whose end logits depend on the start; a plain span "
            "model cannot start from them: give a checkpoint of QAModule or one with 'rationale' heads"
        )
    if found == ChoiceModel.heads:
        raise CheckpointError(
            f"{path}: the checkpoint has 'choice' heads, which no span head can be made of; give a "
            "checkpoint of QAModule or AnswerModule"
        )
    if found != QAModel.heads:
        log.info("%s: encoder and span head taken over, the %r heads left behind", path, found)
    return load_ckpt(path, backbone, heads=QAModel.heads).model.train()


def starting_answer_model(backbone: Backbone, heads: str, head_options: dict[str, Any]) -> QAModel:
    """The model with answer heads that training starts from, from a `.ckpt` of ours: all of it where it has
    the same heads, the encoder and the span head where it is a plain span model.

    Raises:
        CheckpointError: it has other heads or other options of them, or see `load_qa`.
    """
    path = Path(backbone.checkpoint)
    check_ckpt(path, backbone.architecture)
    checkpoint = read_ckpt(path, mmap=True)
    found = heads_in(checkpoint)
    if found == QAModel.heads:
        plain = load_ckpt(path, backbone).model
        log.info("%s: encoder and span head taken over, answer heads (%s) start random", path, heads)
        return MODELS[heads](plain.to_pretrained(), plain.architecture, **head_options).train()
    if found != heads:
        raise CheckpointError(
            f"{path}: the checkpoint has {found!r} heads, the configuration asks for {heads!r}"
        )
    if (its := checkpoint[KEY]["head_options"]) != head_options:
        raise CheckpointError(
            f"{path}: the checkpoint's {found!r} heads have {_told(its)}, the configuration asks for "
            f"{_told(head_options)}"
        )
    return load_ckpt(path, backbone).model.train()


def load_ckpt(path: Path, backbone: Backbone | None = None, *, heads: str = "") -> Loaded[Any]:
    """The model of a checkpoint, with its own heads or, for `span`, the part of it that is a plain model."""
    from transformers import AutoConfig

    checkpoint = read_ckpt(path)
    about = checkpoint[KEY]
    row = ARCHITECTURES.get(about["architecture"])
    if row is None:
        raise CheckpointError(f"{path}: unknown architecture {about['architecture']!r}")
    found = heads or heads_in(checkpoint)
    if found not in EVERY_MODEL:
        raise CheckpointError(f"{path}: unknown heads {found!r}; this version knows {', '.join(EVERY_MODEL)}")
    options = about.get("head_options", {}) if found == heads_in(checkpoint) else {}
    try:
        config = AutoConfig.for_model(row.model_type, **_without_type(json.loads(about["config"])))
        if backbone is not None:
            apply_settings(config, backbone)
        model = EVERY_MODEL[found](build(config, backbone), about["architecture"], **options)
    except Exception as error:  # BackboneError, huggingface_hub's validation errors
        raise CheckpointError(f"{path}: {' '.join(str(error).split())}") from error
    prefix = "model."
    state = {
        key.removeprefix(prefix): value
        for key, value in checkpoint["state_dict"].items()
        if key.startswith(prefix)
    }
    try:
        missing, _ = model.load_state_dict(state, strict=False)
    except RuntimeError as error:  # weights of another shape
        raise CheckpointError(f"{path}: {str(error).splitlines()[-1].strip()}") from error
    if missing:
        raise CheckpointError(f"{path}: {len(missing)} weights are missing (first: {missing[0]})")
    return Loaded(model, about["tokenizer"], about["encoding"])


def load_folder(path: str) -> LoadedQA:
    """The plain model of a Hugging Face folder or a name on the Hub; CheckpointError where there is none."""
    architecture = folder_architecture(path)
    try:
        model = QAModel.from_backbone(Backbone(architecture=architecture, checkpoint=path))  # type: ignore[arg-type]
    except BackboneError as error:
        raise CheckpointError(str(error)) from error
    return Loaded(model, path, {})


def folder_architecture(path: str) -> str:
    """The row of ARCHITECTURES that a Hugging Face folder or a name on the Hub is of; reads no weights.

    Raises:
        CheckpointError: there is no model, or none of these architectures.
    """
    from transformers import AutoConfig

    try:
        model_type = AutoConfig.from_pretrained(path).model_type
    except Exception as error:  # OSError, ValueError, huggingface_hub's validation errors
        if (Path(path) / "config.json").is_file():
            raise CheckpointError(f"{path}: config.json: {str(error).splitlines()[0]}") from error
        raise CheckpointError(
            f"{path}: no checkpoint file, no Hugging Face folder, and no model of that name on the Hub"
        ) from error
    names = [name for name, row in ARCHITECTURES.items() if row.model_type == model_type]
    if not names:
        raise CheckpointError(f"{path}: model type {model_type!r} is not among {', '.join(ARCHITECTURES)}")
    return names[0]


def fingerprint(model: nn.Module) -> str:
    """SHA-256 over names, shapes, dtypes and values of all weights: equal exactly when the model is."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def heads_in(checkpoint: dict[str, Any]) -> str:
    """By name; checkpoints from before there were others have a span head."""
    return str(checkpoint[KEY].get("heads", QAModel.heads))


def _told(options: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in options.items()) or "no options"


def _without_type(config: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in ("model_type", "transformers_version")}
