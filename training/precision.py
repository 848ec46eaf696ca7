"""Which precision is the faster one on this machine."""

from __future__ import annotations

import time

import torch

SECONDS = 0.1
SIZE = 768


def faster_precision() -> str:
    """`bf16-mixed` on a GPU that has it; on a CPU the faster of `32-true` and `bf16-mixed`.

    A fifth of a second of matrix products, forwards and backwards, decides: processors without matrix units
    for bfloat16 convert it, and take twice as long.
    """
    if torch.cuda.is_available():
        return "bf16-mixed" if torch.cuda.is_bf16_supported() else "32-true"
    rates = {dtype: products_per_second(dtype) for dtype in (torch.float32, torch.bfloat16)}
    return "bf16-mixed" if rates[torch.bfloat16] > rates[torch.float32] else "32-true"


def products_per_second(dtype: torch.dtype) -> float:
    """Forward and backward products of a linear layer, of rows as a small batch has them."""
    layer = torch.nn.Linear(SIZE, SIZE, dtype=dtype)
    rows = torch.ones(1024, SIZE, dtype=dtype, requires_grad=True)
    layer(rows).sum().backward()
    began, done = time.perf_counter(), 0
    while time.perf_counter() - began < SECONDS:
        layer(rows).sum().backward()
        done += 1
    return done / (time.perf_counter() - began)
