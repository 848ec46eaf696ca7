"""A small random model of every architecture in the table, and rows to feed it."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForQuestionAnswering

from interventune.models.backbones import ARCHITECTURES, Backbone, EncoderModel
from interventune.models.checkpoint import KEY, describe, heads_class
from interventune.models.loading import start

NAMES = tuple(name for name, row in ARCHITECTURES.items() if not row.causal)
"""All encoders; of decoders tests/models/language/test_model_calls.py."""
Inputs = dict[str, Tensor]
PAD = 1
VOCABULARY = 60

_SIZES: dict[str, dict[str, Any]] = {
    "xlnet": {"d_model": 32, "d_inner": 64, "n_layer": 2},
    "distilbert": {"dim": 32, "hidden_dim": 64},
    "electra": {"hidden_size": 32, "intermediate_size": 64, "embedding_size": 16},
    "modernbert": {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3}
    | {"local_attention": 8}
    | {f"{name}_token_id": 2 for name in ("bos", "eos", "cls", "sep")},
}
TOKENIZER = {"tokenizer.json": "{}", "tokenizer_config.json": "{}"}
ENCODING = {"order": "context_first", "max_length": 100}


def at(path: Path | str, name: str = "bert", **changes: Any) -> Backbone:
    """The backbone of a checkpoint."""
    return Backbone(architecture=name, checkpoint=str(path), **changes)  # type: ignore[arg-type]


def backbone(name: str, **changes: Any) -> Backbone:
    """Random weights, 32 hidden units."""
    sizes = _SIZES.get(name, {"hidden_size": 32, "intermediate_size": 64})
    config = {"vocab_size": VOCABULARY, "pad_token_id": PAD} | sizes | changes.pop("config", {})
    return at("random", name, config=config, **changes)


MODELS = (
    *((name, "span") for name in NAMES),
    *((name, heads) for name in ("bert", "xlnet") for heads in ("rationale", "xlnet", "choice")),
    ("roberta", "choice"),
)
"""Architecture and heads of what must hold for every model: all encoders, and all heads."""


@torch.no_grad()
def loud(built: Any, times: float = 2) -> Any:
    """In evaluation mode, with weights large enough that inputs matter."""
    for parameter in built.parameters():
        parameter.mul_(times).add_(0.05 * torch.randn_like(parameter))
    return built.eval()


def model(name: str, heads: str = "span", seed: int = 0, **options: Any) -> Any:
    torch.manual_seed(seed)
    return loud(start(backbone(name), heads_class(heads), **options))


def to_pretrained(built: Any) -> Any:
    """transformers' own model with the modules of a span model or a decoder."""
    if built.heads == "causal":
        return built.encoder
    pretrained = AutoModelForQuestionAnswering.from_config(built.config)
    setattr(pretrained, pretrained.base_model_prefix, built.encoder)
    names = ARCHITECTURES[built.architecture].span_head
    for name, layer in zip(names, built.span_head.layers, strict=True):
        setattr(pretrained, name, layer)
    return pretrained


def call(built: EncoderModel, inputs: Inputs) -> tuple[Any, ...]:
    """One question whose choices are the rows, or the rows with what their heads need."""
    if built.heads == "choice":
        return ({key: value[None] for key, value in inputs.items()},)
    return (inputs,) if built.heads == "span" else (inputs, context_of(inputs))


def tensors(output: Any) -> list[Tensor]:
    """The output of any model."""
    return [output] if isinstance(output, Tensor) else list(output)


def cls_of(name: str, mask_BT: Tensor) -> Tensor:
    """Where the classification token stands: XLNet's last, all others' first."""
    first_B = mask_BT.argmax(1)
    return first_B + mask_BT.sum(1) - 1 if name == "xlnet" else first_B


def context_of(inputs: Inputs) -> Tensor:
    """The middle of every row."""
    mask_BT = inputs["attention_mask"]
    rank_BT = mask_BT.cumsum(1) * mask_BT
    return (rank_BT > 2) & (rank_BT < mask_BT.sum(1, keepdim=True) - 1)


def content(built: EncoderModel) -> dict[str, Any]:
    """What Lightning saves, as far as we read it."""
    return {
        "state_dict": {f"model.{key}": value for key, value in built.state_dict().items()},
        "global_step": 12,
        KEY: describe(built, TOKENIZER, ENCODING),
    }


def save(folder: Path, built: EncoderModel) -> Path:
    """A checkpoint file of a model."""
    torch.save(content(built), folder / "last.ckpt")
    return folder / "last.ckpt"


def rows(lengths: list[int], seed: int = 0, *, width: int = 0, left: bool = False) -> Inputs:
    """A padded batch of random rows; the same rows whatever the padding."""
    generator, shape = torch.Generator().manual_seed(seed), (len(lengths), width or max(lengths))
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = {name: torch.zeros(shape, dtype=torch.long) for name in names}
    inputs["input_ids"] += PAD
    for b, length in enumerate(lengths):
        at = slice(shape[1] - length, None) if left else slice(length)
        inputs["input_ids"][b, at] = torch.randint(5, VOCABULARY, (length,), generator=generator)
        inputs["attention_mask"][b, at] = 1
        inputs["token_type_ids"][b, at] = (torch.arange(length) > length // 2).long()
    return inputs
