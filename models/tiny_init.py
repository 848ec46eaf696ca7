"""An initialisation with which a tiny encoder learns to read in a minute on a CPU.

To connect a question with the sentence that answers it, attention must link equal words and
neighbours. Both links exist from the first step if words and positions have separate axes and
queries and keys start near a multiple of the identity. From an ordinary start this takes thousands
of steps.
"""

import math
from typing import Any

import torch
from torch import nn

from interventune.storage.errors import DataError

WEIGHT_STD = 0.1
"""Standard deviation of linear weights: larger than transformers' 0.02, because two layers amplify
little.
"""
WORD_STD, WORD_STD_ON_POSITION_AXES = 0.5, 0.1
POSITION_AXES, POSITION_BASE = 32, 64.0
"""Number of first axes for positions; wavelengths up to 2 pi * 64, the length of a story."""
HEAD_GAINS = (0.5, 1.2, 1.2, 0.0)
"""Multiples of the identity in W_Q W_K, one per head, repeated for more heads."""


@torch.no_grad()
def reading_init_(model: nn.Module) -> None:
    """Prepare a freshly initialised model for reading, in place; see the constants above.

    Raises:
        DataError: not a BERT-like encoder (`attention.self.query` and `.key`,
            `embeddings.position_embeddings`: BERT, RoBERTa, ELECTRA); XLNet, for example.
    """
    parts = dict(model.named_modules())
    ends = ("attention.self.query", "attention.self.key")
    matching: list[Any] = [part for name, part in parts.items() if name.endswith(ends)]
    tables = [part for part in parts.values() if isinstance(part, nn.Embedding)]
    positions = [t for name, t in parts.items() if name.endswith("embeddings.position_embeddings")]
    if not matching or not positions:
        raise DataError(
            f"backbone.reading_init: {type(model).__name__} has no BERT-like attention and "
            "positions"
        )
    for part in parts.values():
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, std=WEIGHT_STD)
    config: Any = model.config
    heads = config.num_attention_heads
    gains = torch.tensor([HEAD_GAINS[head % len(HEAD_GAINS)] for head in range(heads)])
    for linear in matching:
        root = gains.repeat_interleave(linear.out_features // heads).sqrt()
        linear.weight.mul_(0.5).add_(torch.diag(root))
    for table in tables:
        nn.init.normal_(table.weight, std=WORD_STD)
        table.weight[:, :POSITION_AXES] *= WORD_STD_ON_POSITION_AXES / WORD_STD
    for table in positions:
        # Sine and cosine codes (Vaswani et al. 2017, 3.5).
        axes = min(POSITION_AXES, table.embedding_dim)
        position = torch.arange(table.num_embeddings, dtype=torch.float32)[:, None]
        step = torch.arange(0, axes, 2, dtype=torch.float32)
        angle = position * torch.exp(step * (-math.log(POSITION_BASE) / axes))
        table.weight.zero_()
        table.weight[:, 0:axes:2] = torch.sin(angle) * math.sqrt(2)
        table.weight[:, 1:axes:2] = torch.cos(angle) * math.sqrt(2)
