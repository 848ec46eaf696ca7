"""Trained models in files: look at one, load one to ask it, start training from one.

    info = inspect(path)                     # no weights are read
    model, info = load(path, QAModel)
    model = start(backbone, RationaleModel)  # from the Hub, a folder, or a checkpoint of ours

A `.ckpt` is a Lightning checkpoint that also carries, under one key, the architecture, the transformers
configuration, the tokenizer's files and how text was encoded. It loads with `weights_only=True` and needs
neither the Hub nor the experiment's configuration.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field, replace
from pathlib import Path
from pickle import UnpicklingError
from pkgutil import resolve_name
from typing import Any, Literal, TypeVar, cast

import torch
from torch import nn

from models.backbones import (
    ARCHITECTURES,
    RANDOM,
    ArchitectureName,
    Backbone,
    CheckpointError,
    EncoderModel,
    same_adapter,
)
from models.heads.span import SpanModel
from models.pretrained import (
    apply_settings,
    build,
    folder_architecture,
    load_pretrained,
    prepare_training,
    refuse_nonfinite,
)
from storage.errors import DataError
from storage.files import require_file
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
"""Where the model of each kind of heads is, by the name that checkpoints record; imported when it is used."""

Part = Literal["all", "span", "encoder"]
START_FROM: dict[str, dict[str, Part]] = {
    "span": {"span": "all", "rationale": "span"},
    "rationale": {"rationale": "all", "span": "span"},
    "xlnet": {"xlnet": "all", "span": "span"},
    "choice": {"choice": "all", "span": "encoder", "rationale": "encoder", "xlnet": "encoder"},
    "causal": {"causal": "all"},
}
"""What a model with the heads of the first name takes over from a checkpoint with those of the second: all
of it, encoder and span head, or the encoder. What is not here is refused."""

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
    """Options of the text encoding that the model was trained with; empty if the checkpoint, or the folder
    (in `RECORD`), does not say."""
    step: int = 0
    """Of training."""
    resumable: bool = False
    """Whether training can go on from it: it holds more than weights."""
    adapter: dict[str, Any] = field(default_factory=dict)
    """Of LoRA (`Backbone.adapter`); empty without."""

    def require(self, *, architecture: str = "", heads: str = "") -> CheckpointInfo:
        """The same; CheckpointError where the checkpoint has another architecture or other heads."""
        if architecture and self.architecture != architecture:
            raise CheckpointError(
                f"{self.path}: the checkpoint is of architecture {self.architecture!r}, "
                f"the configuration asks for {architecture!r}"
            )
        if heads and self.heads != heads:
            raise CheckpointError(
                f"{self.path}: the checkpoint has {self.heads!r} heads, the configuration asks for {heads!r}"
            )
        return self

    def require_kind(self, kind: type[EncoderModel]) -> None:
        """CheckpointError unless `load` makes a model of `kind` of this checkpoint."""
        if self.heads and not issubclass(found := heads_class(self.heads), kind):
            raise CheckpointError(
                f"{self.path}: the checkpoint {found.purpose} ({self.heads!r} heads); "
                f"give one that {kind.purpose}"
            )


def heads_class(name: str) -> type[EncoderModel]:
    """The model with heads of this name, a key of `HEADS`."""
    return cast(type[EncoderModel], resolve_name(HEADS[name]))


def describe(
    model: EncoderModel, tokenizer_files: dict[str, str], encoding: dict[str, Any]
) -> dict[str, Any]:
    """Our part of a checkpoint, to be stored under `KEY`: plain strings, numbers and dicts."""
    return {
        "format": FORMAT,
        "architecture": model.architecture,
        "heads": model.heads,
        "head_options": model.head_options,
        "config": model.config.to_json_string(use_diff=False),
        "tokenizer": tokenizer_files,
        "encoding": encoding,
        "adapter": model.adapter,
    }


def inspect(path: str) -> CheckpointInfo:
    """Look at a `.ckpt` of ours, a Hugging Face folder or a Hub name without reading its weights.

    Raises:
        CheckpointError: nothing is there, it is truncated or not ours, or its architecture or heads are not
            in the tables.
    """
    if not _is_file(path):
        own = _recorded(path)
        return CheckpointInfo(
            path=path,
            architecture=folder_architecture(path),
            tokenizer=path,
            encoding=own.get("encoding", {}),
            head_options=own.get("head_options", {}),
        )
    checkpoint = _read(path, mmap=True)
    saved = checkpoint[KEY]
    config = json.loads(saved["config"])
    info = CheckpointInfo(
        path=path,
        architecture=saved["architecture"],
        heads=saved["heads"],
        head_options=saved["head_options"],
        config={k: v for k, v in config.items() if k != "transformers_version"},
        tokenizer=saved["tokenizer"],
        encoding=saved["encoding"],
        step=int(checkpoint.get("global_step", 0)),
        resumable="optimizer_states" in checkpoint,
        adapter=saved["adapter"],
    )
    for what, name, known in (
        ("architecture", info.architecture, ARCHITECTURES),
        ("heads", info.heads, HEADS),
    ):
        if name not in known:
            raise CheckpointError(f"{path}: unknown {what} {name!r}; this version knows {', '.join(known)}")
    return info


def load(path: str, kind: type[M]) -> tuple[M, CheckpointInfo]:
    """A model in evaluation mode: of a `.ckpt` of ours, a Hugging Face folder, or a Hub name.

    Args:
        path: where the checkpoint is.
        kind: the models that the caller can use, such as `QAModel` for all that answer questions about a
            text. Of a folder comes a span model, of a decoder's a causal one, or for `ChoiceModel` its
            encoder under a head of random weights, always the same: a baseline that knows nothing.

    Raises:
        CheckpointError: nothing usable is there; the message names the path and the reason.
    """
    info = inspect(path)
    info.require_kind(kind)
    model: EncoderModel
    if info.heads:
        model = _merged(_whole(info, heads_class(info.heads), info.head_options))
    else:
        name = cast(ArchitectureName, info.architecture)
        causal = ARCHITECTURES[name].causal
        plain = heads_class("causal") if causal else SpanModel
        asked_for_plain = issubclass(plain, kind)
        if causal and not asked_for_plain:
            raise CheckpointError(f"{path}: is a decoder; give a model that {kind.purpose}")
        pretrained = load_pretrained(
            Backbone(architecture=name, checkpoint=path),
            new_head=logging.WARNING if asked_for_plain else logging.INFO,
        )
        if asked_for_plain:
            try:
                model = plain(pretrained, name, **info.head_options)
            except TypeError as error:
                raise CheckpointError(f"{Path(path) / RECORD}: head_options: {error}") from error
        else:
            info = replace(info, encoding={}, head_options={})  # of other heads
            options: dict[str, Any] = {"generator": torch.Generator().manual_seed(0)}
            model = kind(pretrained, name, **options)
    return cast(M, model.eval()), info


def start(backbone: Backbone, kind: type[M], **options: Any) -> M:
    """The model that training starts from, in training mode, with an adapter where `lora_rank` asks for one.
    From a checkpoint with the same adapter that goes on; any other is merged before.

    Weights that `backbone.checkpoint` does not hold start random, from torch's global seed; `START_FROM` says
    what a checkpoint of ours gives. Of any other, encoder and span head are taken over, and a pooler.

    Args:
        backbone: encoder and starting weights.
        kind: the model's class, see `heads_class`.
        options: of its heads, see its constructor.

    Raises:
        CheckpointError: nothing usable is there, or the checkpoint has heads, or options of them, from which
            this model cannot start.
    """
    model = _start(backbone, kind, options)
    wanted = backbone.adapter
    if not same_adapter(model.adapter, wanted):
        _merged(model)
    if wanted:
        from models.adapters import add_adapter, base_digest  # peft takes seconds

        if not model.adapter:
            add_adapter(model, wanted | {"digest": base_digest(wanted["base"])})
        for weight in model.encoder.parameters() if backbone.frozen_weights == "bfloat16" else ():
            if not weight.requires_grad:
                weight.data = weight.data.to(torch.bfloat16)
    return model


def _start(backbone: Backbone, kind: type[M], options: dict[str, Any]) -> M:
    """The same with the adapter of the checkpoint, if it has one."""
    path = backbone.checkpoint
    if backbone.causal != (kind.heads == "causal"):
        what = "a decoder" if backbone.causal else "an encoder"
        raise CheckpointError(
            f"backbone.architecture: {backbone.architecture} is {what}, on which {kind.heads!r} heads do not "
            "go"
        )
    if not _is_file(path):
        pretrained = prepare_training(load_pretrained(backbone), backbone)
        model = kind(pretrained, backbone.architecture, **options)
        if path != RANDOM:
            model.take_pooler(path)
        if kind.heads not in (SpanModel.heads, "causal"):
            log.info("%s: the heads (%s) start random", path, kind.heads)
        return model
    info = inspect(path).require(architecture=backbone.architecture)
    part = START_FROM[kind.heads].get(info.heads)
    if part is None:
        known = " or ".join(map(repr, START_FROM[kind.heads]))
        raise CheckpointError(
            f"{path}: the checkpoint has {info.heads!r} heads, from which {kind.heads!r} heads cannot start; "
            f"give one with {known} heads"
        )
    if part == "all":
        model = _whole(info, kind, options, backbone)
        if model.head_options != info.head_options:
            found, wanted = (
                ", ".join(f"{name}={value!r}" for name, value in listed.items()) or "no options"
                for listed in (info.head_options, model.head_options)
            )
            raise CheckpointError(
                f"{path}: the checkpoint's {info.heads!r} heads have {found}, the configuration asks for "
                f"{wanted}"
            )
        return model.train()
    if part == "span":
        plain = _merged(_whole(info, SpanModel, {}, backbone))
        log.info("%s: encoder and span head taken over, not the rest of its %r heads", path, info.heads)
        if isinstance(plain, kind):
            return plain.train()
        return kind(plain.to_pretrained(), info.architecture, **options).train()
    whole = _merged(_whole(info, heads_class(info.heads), info.head_options, backbone))
    log.info("%s: encoder taken over, the heads (%s) start random", path, kind.heads)
    return kind(whole.encoder, info.architecture, **options).train()


def reading_order(path: str) -> str:
    """Whether a checkpoint of ours was trained to read `question_first` or `context_first`; `auto` for one
    that does not say. CheckpointError as for `inspect`."""
    encoding = inspect(path).encoding if _is_file(path) else _recorded(path).get("encoding", {})
    return str(encoding.get("order", "auto"))


def write_record(info: CheckpointInfo, model: EncoderModel, folder: Path) -> None:
    """Keep in a folder with an exported model how its checkpoint was trained to read, and by what its heads
    score."""
    record = {"encoding": info.encoding, "head_options": model.head_options}
    (folder / RECORD).write_text(json.dumps(record, indent=1), encoding="utf-8")


def _recorded(folder: str) -> dict[str, dict[str, Any]]:
    file = Path(folder) / RECORD
    return load_json(file, dict[str, dict[str, Any]]) if file.is_file() else {}


def _is_file(path: str) -> bool:
    return Path(path).suffix == ".ckpt" or Path(path).is_file()


def _whole(
    info: CheckpointInfo, kind: type[M], options: dict[str, Any], backbone: Backbone | None = None
) -> M:
    """The model of a checkpoint of ours, on its base where it holds an adapter alone, which stays apart."""
    if not info.adapter:
        model = _empty(info, kind, options, backbone)
        _fill(model, info.path)
        return model
    from models.adapters import add_adapter, check_base

    if base := info.adapter.get("base"):
        name = cast(ArchitectureName, info.architecture)
        below = Backbone(architecture=name, checkpoint=base)
        if backbone is not None:
            goes_on = same_adapter(info.adapter, backbone.adapter)  # else it is merged, in float32
            frozen = backbone.frozen_weights if goes_on else "float32"
            below = replace(backbone, checkpoint=base, lora_rank=0, frozen_weights=frozen)
        try:
            check_base(info.adapter, info.path)
            model = start(below, kind, **options)
        except (CheckpointError, OSError) as error:  # OSError: of a Hub that cannot be reached
            raise CheckpointError(f"{info.path}: its adapter stands on {base!r}: {error}") from error
    else:
        model = _empty(info, kind, options, backbone)
    add_adapter(model, {**info.adapter, "base": base or ""})
    _fill(model, info.path, partly=bool(base))
    return model


def _merged(model: M) -> M:
    """The same model without an adapter, see `models.adapters.merge_adapter`."""
    if model.adapter:
        from models.adapters import merge_adapter

        merge_adapter(model)
    return model


def _empty(
    info: CheckpointInfo, kind: type[M], options: dict[str, Any], backbone: Backbone | None = None
) -> M:
    """A model of the checkpoint's configuration, with random weights."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.for_model(**info.config)
        if backbone is not None:
            apply_settings(config, backbone)
        name = cast(ArchitectureName, info.architecture)
        pretrained = build(config, backbone or Backbone(architecture=name, checkpoint=info.path))
        if backbone is not None:
            prepare_training(pretrained, backbone)
        return kind(pretrained, info.architecture, **options)
    except Exception as error:  # CheckpointError, huggingface_hub's validation errors
        raise CheckpointError(f"{info.path}: {' '.join(str(error).split())}") from error


def _fill(model: nn.Module, path: str, *, partly: bool = False) -> None:
    """Put the weights of a checkpoint into a model; those that it has no place for stay behind. `partly`:
    frozen weights are there already."""
    weights = _read(path)["state_dict"]
    prefix = "model."
    try:
        missing, _ = model.load_state_dict(
            {key.removeprefix(prefix): value for key, value in weights.items() if key.startswith(prefix)},
            strict=False,
        )
    except RuntimeError as error:  # weights of another shape
        raise CheckpointError(f"{path}: {str(error).splitlines()[-1].strip()}") from error
    if partly:
        tied = model.named_parameters(remove_duplicate=False)
        frozen = {name for name, weight in tied if not weight.requires_grad}
        missing = [name for name in missing if name not in frozen]
    if missing:
        raise CheckpointError(f"{path}: {len(missing)} weights are missing (first: {missing[0]})")
    refuse_nonfinite(model.state_dict(), path)


def read_archive(path: str | Path, *, mmap: bool = False) -> Any:
    """What `torch.save` wrote: tensors and plain values; nothing in it is run.

    Args:
        path: the file.
        mmap: leave the tensors on disk.

    Raises:
        DataError: the file is damaged, or holds other objects; the message names it.
        OSError: it is not there, or cannot be read.
    """
    require_file(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except (FileNotFoundError, PermissionError):
        raise
    except UnpicklingError as error:  # whose advice would be to run what the file says
        raise DataError(f"{path}: holds objects other than tensors and plain values") from error
    except Exception as error:  # what torch makes of an archive that it did not write: a dozen types
        reason = (str(error) or type(error).__name__).splitlines()[0][:120]
        raise DataError(f"{path}: cannot be read by torch ({reason})") from error


def _read(path: str, *, mmap: bool = False) -> dict[str, Any]:
    """A Lightning checkpoint with all that we need of it; `mmap` leaves the weights on disk."""
    try:
        checkpoint = read_archive(path, mmap=mmap)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: no such checkpoint") from error
    except DataError as error:
        raise CheckpointError(f"{error}; not a readable checkpoint of `interventune train`") from error
    if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get(KEY), dict):
        raise CheckpointError(f"{path}: not a checkpoint of this project (it has no {KEY!r} entry)")
    saved = checkpoint[KEY]
    if saved.get("format") != FORMAT:
        raise CheckpointError(
            f"{path}: of format {saved.get('format')!r}; this version reads format {FORMAT}"
        )
    if not isinstance(checkpoint.get("state_dict"), dict):
        raise CheckpointError(f"{path}: damaged: 'state_dict' is absent or of a wrong type")
    return checkpoint
