"""What a checkpoint says about itself: `read_info` reads it, `describe` writes it.

A `.ckpt` is a Lightning checkpoint that also contains, under one key, the architecture, the
transformers configuration, the tokenizer's files and the text encoding.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal

from interventune.storage.errors import DataError, as_data_error
from interventune.storage.files import read_archive
from interventune.storage.json_files import check, load_json

from .backbones import ARCHITECTURES, ArchitectureName, EncoderModel

if TYPE_CHECKING:  # transformers takes seconds to import
    from transformers import PreTrainedConfig

KEY = "interventune"
"""The key of this project's part of a Lightning checkpoint."""
FORMAT = 1

RECORD = "interventune.json"
"""The file of an exported folder with the text encoding, which transformers' own files lack."""

HEADS = {
    "span": "interventune.models.heads.span:SpanModel",
    "rationale": "interventune.models.heads.answers:RationaleModel",
    "xlnet": "interventune.models.heads.xlnet:XLNetModel",
    "choice": "interventune.models.heads.choice:ChoiceModel",
    "causal": "interventune.models.heads.causal:CausalModel",
}
"""The model class of each kind of heads, by its name in checkpoints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointInfo:
    """The metadata of a checkpoint."""

    path: str
    architecture: ArchitectureName
    tokenizer: dict[str, str] | str
    """The tokenizer's files by name, or its folder or Hub name."""
    heads: Literal["", "span", "rationale", "xlnet", "choice", "causal"] = ""
    """A name in `HEADS`; empty for a folder, which has an encoder and perhaps a span head."""
    head_options: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    """Values of transformers' configuration, including `model_type`; empty for a folder."""
    encoding: dict[str, Any] = field(default_factory=dict)
    """Options of the text encoding used in training; empty if unknown."""
    adapter: dict[str, Any] = field(default_factory=dict)
    """The LoRA adapter (`interventune.models.adapters.requested_adapter`); empty without one."""
    step: int = 0
    """Training steps."""
    resumable: bool = False
    """Whether training can resume from it, that is, whether it contains more than weights."""

    def require(self, *, architecture: str = "", heads: str = "") -> CheckpointInfo:
        """Return itself; DataError if the checkpoint has another architecture or other heads."""
        for what, expected in (("architecture", architecture), ("heads", heads)):
            value = getattr(self, what)
            if expected and value != expected:
                raise DataError(
                    f"{self.path}: {what} {value!r}, but the configuration asks for {expected!r}"
                )
        return self


def heads_class(name: str) -> type[Any]:
    """Return the model class of these heads, a key of `HEADS`."""
    return resolve_name(HEADS[name])


def describe(
    model: EncoderModel, tokenizer: dict[str, str], encoding: dict[str, Any]
) -> dict[str, Any]:
    """Return this project's part of a checkpoint, in plain values, to be stored under `KEY`."""
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


def is_file(path: str) -> bool:
    """Whether a checkpoint is a `.ckpt`, not a folder or a Hub name."""
    return Path(path).suffix == ".ckpt" or Path(path).is_file()


def read_info(path: str) -> CheckpointInfo:
    """Read the metadata of this project's `.ckpt`, a Hugging Face or peft folder, or a Hub name,
    without its weights. DataError if nothing usable is found.
    """
    if not is_file(path):
        config, file = read_config(path), Path(path) / RECORD
        architecture = architecture_of(config, path, str((config.architectures or [""])[0]))
        record = load_json(file, dict[str, dict[str, Any]]) if file.is_file() else {}
        encoding = record.get("encoding", {})
        return CheckpointInfo(
            path=path, architecture=architecture, tokenizer=path, encoding=encoding
        )
    checkpoint = read_checkpoint(path, mmap=True)
    fields = checkpoint[KEY] | {
        "path": path,
        "config": json.loads(checkpoint[KEY]["config"]),
        "step": checkpoint.get("global_step", 0),
        "resumable": "optimizer_states" in checkpoint,
    }
    return check(fields, CheckpointInfo, path)


def read_checkpoint(path: str, *, mmap: bool = False) -> dict[str, Any]:
    """Read a `.ckpt` of this project; `mmap` leaves the weights on disk, unchecked. DataError for
    any other file.
    """
    checkpoint: Any = read_archive(path, mmap=mmap)
    known = isinstance(checkpoint, dict) and checkpoint.get(KEY, {}).get("format") == FORMAT
    if known and "state_dict" in checkpoint:
        return checkpoint
    raise DataError(
        f"{path}: no checkpoint of this version (no {KEY!r} of format {FORMAT}, or no weights)"
    )


def read_config(path: str) -> PreTrainedConfig:
    """Read transformers' configuration of a folder, a peft folder's base, or a Hub name; DataError
    without one.
    """
    from transformers import AutoConfig

    base = peft_base(path)
    what = f"{base}: no .ckpt (RUN/checkpoints/best.ckpt), Hugging Face folder or Hub model"
    with as_data_error(what):
        return AutoConfig.from_pretrained(base, trust_remote_code=False)


def peft_base(path: str) -> str:
    """Return the base model of an adapter folder saved by peft; any other path unchanged. DataError
    if the base is this project's checkpoint file.
    """
    file = Path(path) / "adapter_config.json"
    if not file.is_file():
        return path
    base = str(load_json(file, dict[str, Any])["base_model_name_or_path"])
    if base.endswith(".ckpt"):
        raise DataError(
            f"{file}: its base is {base}; export that (interventune export), and name the folder "
            "here"
        )
    return base


def architecture_of(config: PreTrainedConfig, path: str, class_name: str) -> Any:
    """Return the row of ARCHITECTURES of a model, by its configuration and the name of its class.
    DataError, which names `path`, for another architecture.
    """
    for name, row in ARCHITECTURES.items():
        if row.model_type == config.model_type:
            return name
    if class_name.endswith(("ForCausalLM", "LMHeadModel")):
        return "causal"
    if config.is_encoder_decoder:
        raise DataError(
            f"{path}: is a sequence-to-sequence model; name it as a language model, hf:{path}"
        )
    raise DataError(
        f"{path}: model type {config.model_type!r} is not among {', '.join(ARCHITECTURES)}"
    )
