"""How much arithmetic a training step needs, and how much this machine can do.

Shape letters: N order of a square matrix.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn


def matrix_weights(config: Mapping[str, Any]) -> int:
    """Weights of an encoder that every token is multiplied with: its linear layers and the span head.

    Embeddings are looked up, biases and normalisation weights are next to nothing.

    Args:
        config: `num_hidden_layers`, `hidden_size` and `intermediate_size` of BERT or RoBERTa.
    """
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    return int(config["num_hidden_layers"] * (4 * hidden * hidden + 2 * hidden * inner) + 2 * hidden)


def training_flops(config: Mapping[str, Any], lengths: Iterable[int]) -> int:
    """Floating-point operations of a forward and a backward pass over rows of these lengths.

    Two for every weight and token forwards, four backwards; attention adds the products of queries with keys
    and of weights with values: 4 x layers x hidden x length^2 forwards, twice that backwards. Real tokens
    only: padding is work that nobody asked for. (Kaplan et al. 2020, section 2.1, with backward passes.)

    Args:
        config: as in `matrix_weights`.
        lengths: tokens of every row.
    """
    rows = list(lengths)
    attention = 12 * config["num_hidden_layers"] * config["hidden_size"] * sum(n * n for n in rows)
    return 6 * matrix_weights(config) * sum(rows) + attention


def measured_peak(dtype: torch.dtype, device: str = "cpu", repeats: int = 10) -> float:
    """FLOP/s of a large matrix product as torch does it here, the best of some seconds of trying.

    The product is one of a linear layer (`x @ W^T`), 2048 x 2048 on CPUs and 8192 x 8192 on GPUs.
    """
    N = 2048 if device == "cpu" else 8192
    layer = nn.Linear(N, N, bias=False, dtype=dtype, device=device)
    x_NN = torch.randn(N, N, dtype=dtype, device=device)
    best = float("inf")
    with torch.no_grad():
        for _ in range(repeats):
            synchronise(device)
            began = time.perf_counter()
            layer(x_NN)
            synchronise(device)
            best = min(best, time.perf_counter() - began)
    return 2 * N**3 / best


def synchronise(device: str) -> None:
    """Wait until the device has done what it was told."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()
