"""Trained models in files: `inspect` one, `load` one to ask it. (Training starts in models/start.py.)

A `.ckpt` is a Lightning checkpoint that also carries, under one key, the architecture, the transformers
configuration, the tokenizer's files and how text was encoded. It loads with `weights_only=True`.
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
"""Where our part of a Lightning checkpoint lies."""
FORMAT = 1

RECORD = "interventune.json"
"""Beside the files of an exported folder: what transformers' own do not say of how the model reads."""

HEADS = {
    "span": "models.heads.span:SpanModel",
    "rationale": "models.heads.answers:RationaleModel",
    "xlnet": "models.heads.xlnet:XLNetModel",
    "choice": "models.heads.choice:ChoiceModel",
    "causal": "models.heads.causal:CausalModel",
}
"""The model of each kind of heads, by the name that checkpoints record."""

M = TypeVar("M", bound=EncoderModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointInfo:
    """What a checkpoint says about itself."""

    path: str
    architecture: str
    tokenizer: dict[str, str] | str
    """The tokenizer's files by name, or the folder or Hub name that holds them."""
    heads: str = ""
    """A name in `HEADS`; empty for a Hugging Face folder, which has an encoder and perhaps a span head."""
    head_options: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    """Values of transformers' configuration, `model_type` among them; empty for a folder."""
    encoding: dict[str, Any] = field(default_factory=dict)
    """Options of the text encoding that the model was trained with; empty where nothing says."""
    adapter: dict[str, Any] = field(default_factory=dict)
    """Of LoRA (`models.adapters.asked_for`); empty without."""
    step: int = 0
    """Of training."""
    resumable: bool = False
    """Whether training can go on from it: it holds more than weights."""

    def require(self, *, architecture: str = "", heads: str = "") -> CheckpointInfo:
        """The same; DataError where the checkpoint has another architecture or other heads."""
        for what, wanted in (("architecture", architecture), ("heads", heads)):
            if wanted and (found := getattr(self, what)) != wanted:
                raise DataError(f"{self.path}: {what} {found!r}, but the configuration asks for {wanted!r}")
        return self


def heads_class(name: str) -> type[Any]:
    """The model with heads of this name, a key of `HEADS`."""
    return cast("type[Any]", resolve_name(HEADS[name]))


def inspect(path: str) -> CheckpointInfo:
    """Look at a `.ckpt` of ours, a Hugging Face folder or a Hub name without reading its weights.
    DataError where nothing usable is there."""
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


def load(path: str, kind: type[M]) -> tuple[M, CheckpointInfo]:
    """A model in evaluation mode: of a `.ckpt` of ours, a Hugging Face folder, or a Hub name.

    Args:
        kind: the models that the caller can use, such as `QAModel` for all that answer questions about a
            text. Of a folder comes a span model, of a decoder's a causal one, or for `ChoiceModel` its
            encoder under a head of random weights, always the same: a baseline that knows nothing.

    Raises:
        DataError: nothing usable is there.
    """
    info, level = inspect(path), logging.WARNING
    backbone = Backbone(architecture=cast(ArchitectureName, info.architecture), checkpoint=path)
    found, options = heads_class(info.heads or ("causal" if backbone.causal else "span")), info.head_options
    if not issubclass(found, kind):
        if info.heads or backbone.causal:
            raise DataError(f"{path}: a checkpoint with {found.heads!r} heads cannot be asked here")
        found, options, level = kind, {"generator": torch.Generator().manual_seed(0)}, logging.INFO
        info = replace(info, encoding={})  # which is that of other heads
    return merged(stored(backbone, found, options, new_head=level)).eval(), info


def from_pretrained(pretrained: Any, path: str) -> EncoderModel:
    """The modules of transformers' model for span answers, or causal one, under heads of ours; DataError for
    another kind, which `path` names."""
    from models.pretrained import architecture_of

    architecture = architecture_of(pretrained.config, path, type(pretrained).__name__)
    row = ARCHITECTURES[architecture]
    head = pretrained.get_output_embeddings() if row.causal else hasattr(pretrained, row.span_head[-1])
    if not head:
        wanted = "causal language model" if row.causal else "model for question answering"
        raise DataError(f"{path}: a {type(pretrained).__name__} is no {wanted}")
    return cast(EncoderModel, heads_class("causal" if row.causal else "span")(pretrained, architecture))


def stored(backbone: Backbone, kind: type[M], options: dict[str, Any], *, new_head: int = logging.INFO) -> M:
    """A model of this kind out of what the checkpoint of `backbone` holds: its own heads, else encoder and
    span head, for `choice` the encoder alone. The adapter of a checkpoint with the same heads stays apart.

    Args:
        options: of the heads, see the constructor of `kind`.
        new_head: see `load_pretrained`.
    """
    if not is_file(backbone.checkpoint):
        from models.pretrained import load_pretrained

        return kind(load_pretrained(backbone, new_head=new_head), backbone.architecture, **options)
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
    """The same model without an adapter."""
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
    except (ValueError, OSError) as error:  # OSError: of a Hub that cannot be reached
        standing = f"its adapter needs {base!r}: " if base else ""
        raise DataError(f"{info.path}: {standing}{error}") from error
    needed = model.state_dict()
    if info.adapter:
        add_adapter(model, info.adapter)
        needed = own_weights(model, model.state_dict())
    weights = {key.removeprefix("model."): value for key, value in _read(info.path)["state_dict"].items()}
    if missing := sorted(needed.keys() - weights.keys()):
        raise DataError(f"{info.path}: {len(missing)} weights are missing (first: {missing[0]})")
    try:
        model.load_state_dict(weights, strict=False)  # those of other heads stay behind
    except RuntimeError as error:  # of another shape
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
