"""An initialisation with which a tiny encoder learns to read in a minute on a CPU.

From a plain start such a model sits on a plateau for thousands of steps: it finds the right kind of answer
and the wrong entity. Binding a question to the sentence that answers it takes attention between equal words
and between neighbours, and both are there from the first step when queries and keys start near the identity
and positions start as sinusoids. Pretrained weights need none of it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def sinusoids(positions: int, width: int) -> Tensor:
    """Sine and cosine position codes, (positions, width), of unit amplitude (Vaswani et al. 2017, 3.5).

    Wavelengths run from 2 pi to 10,000 * 2 pi positions; an odd width drops the last cosine.
    """
    position = torch.arange(positions, dtype=torch.float32)[:, None]
    rate = torch.exp(torch.arange(0, width, 2, dtype=torch.float32) * (-math.log(10_000.0) / width))
    codes = torch.zeros(positions, width)
    codes[:, 0::2] = torch.sin(position * rate)
    codes[:, 1::2] = torch.cos(position * rate)[:, : width // 2]
    return codes


@torch.no_grad()
def reading_init_(model: nn.Module) -> None:
    """Prepare a freshly initialised encoder for reading, in place: W_Q, W_K = random / 2 + identity, and
    sinusoids in the table of absolute positions, scaled to the word embeddings' own size.

    Works on any module that contains a BERT-like encoder (`attention.self.query` and `.key`,
    `embeddings.position_embeddings`: BERT, RoBERTa, ELECTRA). Raises ValueError where there is none, such as
    for XLNet, whose relative positions need no table.
    """
    projections = [
        module
        for name, module in model.named_modules()
        if name.endswith(("attention.self.query", "attention.self.key")) and isinstance(module, nn.Linear)
    ]
    tables = [m for n, m in model.named_modules() if n.endswith("embeddings.position_embeddings")]
    if not projections or not tables:
        raise ValueError(f"{type(model).__name__} has no BERT-like attention and positions to initialise")
    for projection in projections:
        projection.weight.mul_(0.5).add_(torch.eye(*projection.weight.shape))
    for table in tables:
        assert isinstance(table, nn.Embedding)
        table.weight.copy_(sinusoids(table.num_embeddings, table.embedding_dim) * POSITION_SCALE)


POSITION_SCALE = 0.02
"""Amplitude of the sinusoids: the standard deviation with which transformers draws word embeddings."""
