"""The faster precision on this machine."""

import os
import time
from typing import Any, Literal

import pytorch_lightning as pl
import torch

Precision = Literal["auto", "32-true", "bf16-mixed", "bf16-true", "16-mixed", "16-true", "64-true"]
CHOSEN = "INTERVENTUNE_PRECISION"


class Trainer(pl.Trainer):
    """Trainer of Lightning.

    Args:
        precision: `auto` is bf16-mixed on a GPU that supports it, and on a CPU the faster of
            32-true and bf16-mixed. A resumed run keeps its precision.
        options: of Lightning's Trainer.
    """

    def __init__(self, *, precision: Precision = "auto", **options: Any) -> None:
        super().__init__(precision=precision, **options)


def faster_precision() -> str:
    """`bf16-mixed` on a GPU that has it; on a CPU the faster of `32-true` and `bf16-mixed`.

    Processors without matrix units for bfloat16 convert it, and take twice as long. Processes
    started by Lightning use the first one's choice; those of torchrun and SLURM, which cannot know
    it, use float32.
    """
    if torch.cuda.is_available():
        return "bf16-mixed" if torch.cuda.is_bf16_supported() else "32-true"
    if CHOSEN not in os.environ and not {"WORLD_SIZE", "SLURM_PROCID"} & {*os.environ}:
        rates = [products_per_second(dtype) for dtype in (torch.float32, torch.bfloat16)]
        os.environ[CHOSEN] = "bf16-mixed" if rates[1] > rates[0] else "32-true"
    return os.environ.get(CHOSEN, "32-true")


def products_per_second(dtype: torch.dtype) -> float:
    """Measure forward and backward products of a linear layer, with the rows of a small batch, for
    a tenth of a second.
    """
    layer = torch.nn.Linear(768, 768, dtype=dtype)
    rows = torch.ones(1024, 768, dtype=dtype, requires_grad=True)
    layer(rows).sum().backward()
    began = time.perf_counter()
    done = 0
    while (passed := time.perf_counter() - began) < 0.1:
        layer(rows).sum().backward()
        done += 1
    return done / passed
