"""A small random model of every architecture in the table, and rows to feed it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from models.backbones import ARCHITECTURES, Backbone
from models.heads.answer_heads import ClsSource
from models.heads.answer_model import AnswerHeadsName, AnswerQAModel, build_answer_model
from models.heads.qa_model import QAModel

NAMES = tuple(ARCHITECTURES)
WITH_SEGMENTS = ("bert", "xlnet", "electra")
"""Those whose random model looks at token types (DeBERTa-v3 takes them and has no embedding for them)."""

PAD = 1
VOCABULARY = 60

_SIZES: dict[str, dict[str, Any]] = {
    "xlnet": {"d_model": 32, "d_inner": 64, "n_layer": 2},
    "distilbert": {"dim": 32, "hidden_dim": 64},
    "electra": {"hidden_size": 32, "intermediate_size": 64, "embedding_size": 16},
    "modernbert": {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 3,
        "local_attention": 8,
        **{f"{name}_token_id": 2 for name in ("bos", "eos", "cls", "sep")},
    },
}


def backbone(name: str, **changes: Any) -> Backbone:
    """Random weights, 32 hidden units."""
    sizes = _SIZES.get(name, {"hidden_size": 32, "intermediate_size": 64})
    config = {"vocab_size": VOCABULARY, "pad_token_id": PAD} | sizes | changes.pop("config", {})
    return Backbone(architecture=name, checkpoint="random", config=config, **changes)  # type: ignore[arg-type]


def model(name: str, seed: int = 0) -> QAModel:
    """In evaluation mode, with weights large enough that inputs matter."""
    torch.manual_seed(seed)
    built = QAModel.from_backbone(backbone(name)).eval()
    _louder(built)
    return built


def answer_model(
    name: str, heads: AnswerHeadsName, seed: int = 0, *, cls_source: ClsSource = "hidden"
) -> AnswerQAModel:
    """The same with heads for answer types."""
    torch.manual_seed(seed)
    built = build_answer_model(backbone(name), heads, cls_source=cls_source)
    built.eval()
    _louder(built)
    return built


@torch.no_grad()
def _louder(built: QAModel) -> None:
    for parameter in built.parameters():
        parameter.mul_(2).add_(0.05 * torch.randn_like(parameter))


def rows(lengths: list[int], seed: int = 0, *, width: int = 0, left: bool = False) -> dict[str, Tensor]:
    """A padded batch of random rows; the same rows whatever the padding."""
    generator = torch.Generator().manual_seed(seed)
    width = width or max(lengths)
    inputs = {
        "input_ids": torch.full((len(lengths), width), PAD),
        "attention_mask": torch.zeros(len(lengths), width, dtype=torch.long),
        "token_type_ids": torch.zeros(len(lengths), width, dtype=torch.long),
    }
    for b, length in enumerate(lengths):
        at = slice(width - length, width) if left else slice(0, length)
        inputs["input_ids"][b, at] = torch.randint(5, VOCABULARY, (length,), generator=generator)
        inputs["attention_mask"][b, at] = 1
        inputs["token_type_ids"][b, at] = (torch.arange(length) > length // 2).long()
    return inputs
