"""Trained models in files: `inspect` reads the metadata, `load` the model. (For training: models/start.py.)

A `.ckpt` is a Lightning checkpoint that also contains, under one key, the architecture, the transformers
configuration, the tokenizer's files and the text encoding. It loads with `weights_only=True`.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field, replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, TypeVar, cast

import torch

from models.backbones import ARCHITECTURES, ArchitectureName, Backbone, EncoderModel
from models.build import build, configured, refuse_nonfinite
from storage.errors import DataError
from storage.files import read_archive
from storage.json_files import load_json

log = logging.getLogger(__name__)

KEY = "interventune"
"""The key of this project's part of a Lightning checkpoint."""
FORMAT = 1

RECORD = "interventune.json"
"""The file of an exported folder with the text encoding, which transformers' own files lack."""

HEADS = {
    "span": "models.heads.span:SpanModel",
    "rationale": "models.heads.answers:RationaleModel",
    "xlnet": "models.heads.xlnet:XLNetModel",
    "choice": "models.heads.choice:ChoiceModel",
    "causal": "models.heads.causal:CausalModel",
}
"""The model class of each kind of heads, by its name in checkpoints."""

M = TypeVar("M", bound=EncoderModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointInfo:
    """The metadata of a checkpoint."""

    path: str
    architecture: str
    tokenizer: dict[str, str] | str
    """The tokenizer's files by name, or its folder or Hub name."""
    heads: str = ""
    """A name in `HEADS`; empty for a Hugging Face folder, which has an encoder and perhaps a span head."""
    head_options: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    """Values of transformers' configuration, including `model_type`; empty for a folder."""
    encoding: dict[str, Any] = field(default_factory=dict)
    """Options of the text encoding used in training; empty if unknown."""
    adapter: dict[str, Any] = field(default_factory=dict)
    """The LoRA adapter (`models.adapters.asked_for`); empty without one."""
    step: int = 0
    """Training steps."""
    resumable: bool = False
    """Whether training can resume from it, that is, whether it contains more than weights."""

    def require(self, *, architecture: str = "", heads: str = "") -> CheckpointInfo:
        """Return itself; DataError if the checkpoint has another architecture or other heads."""
        for what, wanted in (("architecture", architecture), ("heads", heads)):
            if wanted and (found := getattr(self, what)) != wanted:
                raise DataError(f"{self.path}: {what} {found!r}, but the configuration asks for {wanted!r}")
        return self


def heads_class(name: str) -> type[Any]:
    """Return the model class of these heads, a key of `HEADS`."""
    return cast("type[Any]", resolve_name(HEADS[name]))


def inspect(path: str) -> CheckpointInfo:
    """Read the metadata of this project's `.ckpt`, a Hugging Face folder or a Hub name, without its weights.
    DataError if nothing usable is found."""
    if not is_file(path):
        from models.pretrained import folder_architecture

        file = Path(path) / RECORD
        own = load_json(file, dict[str, dict[str, Any]]) if file.is_file() else {}
        architecture, encoding = folder_architecture(path), own.get("encoding", {})
        return CheckpointInfo(path=path, architecture=architecture, tokenizer=path, encoding=encoding)
    checkpoint = _read(path, mmap=True)
    saved = {name: value for name, value in checkpoint[KEY].items() if name != "format"}
    for what, known in (("architecture", ARCHITECTURES), ("heads", HEADS)):
        if saved[what] not in known:
            raise DataError(f"{path}: unknown {what} {saved[what]!r}; this version knows {', '.join(known)}")
    saved["config"] = json.loads(saved["config"])
    step, resumable = checkpoint.get("global_step", 0), "optimizer_states" in checkpoint
    return CheckpointInfo(path=path, step=step, resumable=resumable, **saved)


def load(path: str, kind: type[M], dtype: str = "float32") -> tuple[M, CheckpointInfo]:
    """Load a model in evaluation mode: from this project's `.ckpt`, a Hugging Face folder, or a Hub name.

    Args:
        kind: the model class that the caller needs, such as `QAModel` for any model that answers questions
            about a text. A folder gives a span model, a decoder's folder a causal one; for `ChoiceModel`,
            its encoder with a head of fixed random weights, as an untrained baseline.
        dtype: of a folder's weights, see `load_pretrained`; a `.ckpt` keeps its own.

    Raises:
        DataError: nothing usable is found.
    """
    info, level = inspect(path), logging.WARNING
    backbone = Backbone(architecture=cast(ArchitectureName, info.architecture), checkpoint=path)
    found, options = heads_class(info.heads or ("causal" if backbone.causal else "span")), info.head_options
    if not issubclass(found, kind):
        if info.heads or backbone.causal:
            raise DataError(f"{path}: a checkpoint with {found.heads!r} heads cannot be asked here")
        found, options, level = kind, {"generator": torch.Generator().manual_seed(0)}, logging.INFO
        info = replace(info, encoding={})  # it belongs to other heads
    return merged(stored(backbone, found, options, new_head=level, dtype=dtype)).eval(), info


def from_pretrained(pretrained: Any, path: str) -> EncoderModel:
    """Put this project's heads on a transformers model for span answers or a causal one. DataError for any
    other kind; the message names `path`."""
    from models.pretrained import architecture_of

    architecture = architecture_of(pretrained.config, path, type(pretrained).__name__)
    row = ARCHITECTURES[architecture]
    head = pretrained.get_output_embeddings() if row.causal else hasattr(pretrained, row.span_head[-1])
    if not head:
        wanted = "causal language model" if row.causal else "model for question answering"
        raise DataError(f"{path}: a {type(pretrained).__name__} is no {wanted}")
    return cast(EncoderModel, heads_class("causal" if row.causal else "span")(pretrained, architecture))


def stored(backbone: Backbone, kind: type[M], options: dict[str, Any], **loading: Any) -> M:
    """Build a model of this kind from the checkpoint of `backbone`: with its own heads if they match, else
    encoder and span head, for `choice` the encoder alone. The adapter of a checkpoint with the same heads
    is not merged.

    Args:
        options: of the heads, see the constructor of `kind`.
        loading: options of `load_pretrained`.
    """
    if not is_file(backbone.checkpoint):
        from models.pretrained import load_pretrained

        return kind(load_pretrained(backbone, **loading), backbone.architecture, **options)
    info = inspect(backbone.checkpoint).require(architecture=backbone.architecture)
    if info.heads == kind.heads:
        return _whole(info, kind, options, backbone)
    if kind.heads == "choice":
        other = merged(_whole(info, heads_class(info.heads), info.head_options, backbone))
        return kind(other.encoder, info.architecture, **options)
    span = merged(_whole(info, heads_class("span"), {}, backbone))
    log.info("%s: encoder and span head taken over, not the rest of its %r heads", info.path, info.heads)
    return kind(span.to_pretrained(), info.architecture, **options)


def is_file(path: str) -> bool:
    return Path(path).suffix == ".ckpt" or Path(path).is_file()


def merged(model: M) -> M:
    """Return the model with its adapter, if any, merged."""
    if not model.adapter:
        return model
    from models.adapters import merge_adapter

    return merge_adapter(model)


def _whole(info: CheckpointInfo, kind: type[M], options: dict[str, Any], backbone: Backbone) -> M:
    """The model of a checkpoint of ours; its adapter, if it has one, stays apart."""
    if info.adapter:
        from models.adapters import add_adapter, base_digest, own_weights
    base = info.adapter.get("base")
    try:
        if base:
            goes_on = info.adapter["rank"] == backbone.lora_rank  # else it is merged, in float32
            frozen = backbone.frozen_weights if goes_on else "float32"
            below = replace(backbone, checkpoint=base, lora_rank=0, frozen_weights=frozen)
            if base_digest(base) != info.adapter["digest"]:
                raise DataError("its weights have changed since the training; restore them")
            model = merged(stored(below, kind, options))
        else:
            model = kind(build(configured(info.config, backbone), backbone), info.architecture, **options)
    except (ValueError, OSError) as error:  # OSError: the Hub cannot be reached
        standing = f"its adapter needs {base!r}: " if base else ""
        raise DataError(f"{info.path}: {standing}{error}") from error
    needed = model.state_dict()
    if info.adapter:
        add_adapter(model, info.adapter)
        needed = own_weights(model, model.state_dict())
    weights = {key.removeprefix("model."): value for key, value in _read(info.path)["state_dict"].items()}
    if missing := sorted(needed.keys() - weights.keys()):
        raise DataError(f"{info.path}: {len(missing)} weights are missing (first: {missing[0]})")
    if more := sorted(
        key for key in weights.keys() - model.state_dict().keys() if key.startswith("encoder.")
    ):
        raise DataError(f"{info.path}: its configuration has no place for {len(more)} weights, as {more[0]}")
    try:
        model.load_state_dict(weights, strict=False)  # weights of other heads are ignored
    except RuntimeError as error:  # another shape
        raise DataError(f"{info.path}: {str(error).splitlines()[-1].strip()}") from error
    refuse_nonfinite(model.state_dict(), info.path)
    return model


def _read(path: str, *, mmap: bool = False) -> dict[str, Any]:
    """A Lightning checkpoint with all that we need of it; `mmap` leaves the weights on disk."""
    checkpoint = read_archive(path, mmap=mmap)
    known = isinstance(checkpoint, dict) and checkpoint.get(KEY, {}).get("format") == FORMAT
    if not known or "state_dict" not in checkpoint:
        raise DataError(
            f"{path}: no checkpoint of this version (no {KEY!r} of format {FORMAT}, or no weights)"
        )
    return cast("dict[str, Any]", checkpoint)
