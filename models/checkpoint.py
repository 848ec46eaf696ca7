"""Trained models in files: `inspect` one, `load` one to ask it, `start` training from one.

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
from storage.errors import DataError, as_data_error
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
    """Of LoRA (`Backbone.adapter`); empty without."""
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


def inspect(path: str) -> CheckpointInfo:
    """Look at a `.ckpt` of ours, a Hugging Face folder or a Hub name without reading its weights.
    DataError where nothing usable is there."""
    if not _is_file(path):
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
    info = inspect(path)
    architecture = cast(ArchitectureName, info.architecture)
    backbone = Backbone(architecture=architecture, checkpoint=path)
    plain = "causal" if backbone.causal else "span"
    found = heads_class(info.heads or plain)
    fits = issubclass(found, kind)
    of_encoder = not (fits or info.heads or backbone.causal)
    if not (fits or of_encoder):
        raise DataError(f"{path}: a checkpoint with {found.heads!r} heads cannot be asked here")
    if info.heads:
        return _merged(_whole(info, found, info.head_options, backbone)).eval(), info
    from models.pretrained import load_pretrained

    if of_encoder:
        info = replace(info, encoding={})  # of other heads
        random = {"generator": torch.Generator().manual_seed(0)}
        model = kind(load_pretrained(backbone), architecture, **random)
    else:
        model = found(load_pretrained(backbone, new_head=logging.WARNING), architecture)
    return model.eval(), info


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
    from models.cpu_kernels import use_kernels  # imports transformers, which a configuration does without

    path = backbone.checkpoint
    if _is_file(path):
        model = _go_on(inspect(path).require(architecture=backbone.architecture), kind, options, backbone)
    else:
        from models.pretrained import load_pretrained

        model = kind(load_pretrained(backbone), backbone.architecture, **options)
    wanted = backbone.adapter
    if model.adapter.get("rank") != wanted.get("rank"):
        _merged(model)
    if wanted:
        if not model.adapter:
            from models.adapters import add_adapter, base_digest

            add_adapter(model, wanted | {"digest": base_digest(wanted["base"])})
        for weight in model.encoder.parameters() if backbone.frozen_weights == "bfloat16" else ():
            if not weight.requires_grad:
                weight.data = weight.data.to(torch.bfloat16)
    if backbone.gradient_checkpointing:
        with as_data_error("backbone.gradient_checkpointing"):
            model.encoder.gradient_checkpointing_enable()
    use_kernels(model)
    return model.train()


def _go_on(info: CheckpointInfo, kind: type[M], options: dict[str, Any], backbone: Backbone) -> M:
    """What a model starts from by `START_FROM`, with the adapter of a checkpoint of the same heads."""
    if info.heads == kind.heads:
        model = _whole(info, kind, options, backbone)
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
        other = _merged(_whole(info, heads_class(info.heads), info.head_options, backbone))
        return kind(other.encoder, info.architecture, **options)
    span = _merged(_whole(info, heads_class("span"), {}, backbone))
    log.info("%s: encoder and span head taken over, not the rest of its %r heads", info.path, info.heads)
    return kind(span.to_pretrained(), info.architecture, **options)


def _is_file(path: str) -> bool:
    return Path(path).suffix == ".ckpt" or Path(path).is_file()


def _merged(model: M) -> M:
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
                raise DataError("whose weights have changed since; put those of then back")
            model = start(below, kind, **options)
        else:
            model = kind(build(configured(info.config, backbone), backbone), info.architecture, **options)
    except (ValueError, OSError) as error:  # OSError: of a Hub that cannot be reached
        standing = f"its adapter stands on {base!r}: " if base else ""
        raise DataError(f"{info.path}: {standing}{error}") from error
    needed = model.state_dict()
    if info.adapter:
        add_adapter(model, info.adapter)
        needed = own_weights(model, model.state_dict())
    prefix = "model."
    weights = {
        key.removeprefix(prefix): value
        for key, value in _read(info.path)["state_dict"].items()
        if key.startswith(prefix)
    }
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
