"""The record of a `.ckpt`: what this project adds to a Lightning checkpoint under one key, so that
it stands alone. It names the architecture, the transformers configuration, the tokenizer's files
and the text encoding. `describe` makes it, `read_record` reads it.
"""

import json
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import Any, Literal

from interventune.storage.documents import DataError, check, read_archive

from .backbones import ArchitectureName, EncoderModel

KEY = "interventune"
"""The key of the record in a Lightning checkpoint."""
FORMAT = 1
RECORD = "interventune.json"
"""The file of an exported folder with the text encoding, which transformers' own files lack."""

HEADS = {
    "span": "interventune.models.heads.span:SpanModel",
    "rationale": "interventune.models.heads.answers:RationaleModel",
    "xlnet": "interventune.models.heads.answers:XLNetModel",
    "choice": "interventune.models.heads.choice:ChoiceModel",
    "causal": "interventune.models.heads.causal:CausalModel",
}
"""The model class of each kind of heads, by its name in checkpoints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointInfo:
    """What is known of a checkpoint without its weights."""

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

    def require(self, **fields: str) -> None:
        """DataError if the checkpoint has another architecture or other heads."""
        for name, expected in fields.items():
            value = getattr(self, name)
            if value != expected:
                raise DataError(
                    f"{self.path}: {name} {value!r}, but the configuration asks for {expected!r}"
                )


def heads_class(name: str) -> type[Any]:
    """Return the model class of these heads, a key of `HEADS`."""
    return resolve_name(HEADS[name])


def describe(
    model: EncoderModel, tokenizer: dict[str, str], encoding: dict[str, Any]
) -> dict[str, Any]:
    """Return the record of a model, in plain values, to be stored under `KEY`."""
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


def read_record(path: str) -> CheckpointInfo:
    """Read the record of a `.ckpt`, without its weights; DataError as in `read_checkpoint`."""
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
