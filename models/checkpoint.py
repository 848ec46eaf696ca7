"""The record of a `.ckpt`: what this project adds to a Lightning checkpoint under one key, so that
it stands alone. It names the architecture, the transformers configuration, the tokenizer's files
and the text encoding. `describe` makes it, `read_record` reads it. Checks and digests of weights.
"""

import json
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import Any, Literal

import torch
import xxhash
from torch import nn

from interventune.storage.documents import DataError, Values, as_data_error, check, read_archive

from .backbones import ArchitectureName, EncoderModel

KEY = "interventune"
"""The key of the record in a Lightning checkpoint."""
FORMAT = 1
RECORD = "interventune.json"
"""The file of an exported folder with the text encoding, which transformers' own files lack."""

OF_THIS_COPY = ("_name_or_path", "transformers_version", "architectures", "dtype")
"""Settings of a configuration that say where weights come from, or repeat their type."""

HEADS = {
    "span": "interventune.models.heads.span:SpanModel",
    "rationale": "interventune.models.heads.answers:RationaleModel",
    "xlnet": "interventune.models.heads.answers:XLNetModel",
    "choice": "interventune.models.heads.span:ChoiceModel",
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
    head_options: Values = field(default_factory=dict)
    config: Values = field(default_factory=dict)
    """Values of transformers' configuration, including `model_type`; empty for a folder."""
    encoding: Values = field(default_factory=dict)
    """Options of the text encoding used in training; empty if unknown."""
    adapter: Values = field(default_factory=dict)
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


def describe(model: EncoderModel, tokenizer: dict[str, str], encoding: Values) -> Values:
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
    with as_data_error(f"{path}: its record is damaged"):
        fields = checkpoint[KEY] | {
            "path": path,
            "config": json.loads(checkpoint[KEY]["config"]),
            "step": checkpoint.get("global_step", 0),
            "resumable": "optimizer_states" in checkpoint,
        }
    return check(fields, CheckpointInfo, path)


def read_checkpoint(path: str, *, mmap: bool = False) -> Values:
    """Read a `.ckpt` of this project; `mmap` leaves the weights on disk, unchecked. DataError for
    any other file.
    """
    checkpoint: Any = read_archive(path, mmap=mmap)
    record = checkpoint.get(KEY) if isinstance(checkpoint, dict) else None
    known = isinstance(record, dict) and record.get("format") == FORMAT
    if known and isinstance(checkpoint.get("state_dict"), dict):
        return checkpoint
    raise DataError(
        f"{path}: no checkpoint of this version (no {KEY!r} of format {FORMAT}, or no weights)"
    )


def nonfinite(weights: Values) -> list[str]:
    """Return the names of tensors with NaN or infinity."""
    return [name for name, weight in weights.items() if not weight.isfinite().all()]


def refuse_nonfinite(model: nn.Module, path: str) -> None:
    """DataError if weights from `path` are NaN or infinite: the answers of such a model would look
    like "unknown".
    """
    weights = model.state_dict()
    if names := nonfinite(weights):
        raise DataError(
            f"{path}: {len(names)} of {len(weights)} weights are not finite numbers (first: "
            f"{names[0]}): its training diverged; choose an earlier checkpoint, or train again "
            "with a smaller learning rate"
        )


def fingerprint(model: Any) -> str:
    """A digest of the configuration and of the names, shapes, dtypes and values of all weights:
    equal only for models that compute the same. Equal weights with another `rope_theta` are another
    model.
    """

    def computed(settings: Any) -> Any:
        if not isinstance(settings, dict):
            return settings
        return {str(name): computed(x) for name, x in settings.items() if name not in OF_THIS_COPY}

    digest = xxhash.xxh3_128()
    digest.update(
        json.dumps(computed(model.config.to_dict()), sort_keys=True, default=str).encode()
    )
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
