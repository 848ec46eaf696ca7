"""Random numbers that depend on where training is, not on how it got there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch


class BatchSeed(pl.Callback):
    """Seeds torch before every training batch from (seed, epoch, batch).

    A run that was interrupted, or validated in between, draws the same dropout masks as one that was not, and
    no generator's state has to be stored. Batches are numbered over all processes, so each draws its own.
    On a GPU this sets the generator that the host keeps; nothing waits for the device.

    Args:
        seed: of the run.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Seed the CPU's and the GPU's generators."""
        number = batch_idx * trainer.world_size + trainer.global_rank
        torch.manual_seed(batch_seed(self.seed, trainer.current_epoch, number))


def batch_seed(seed: int, epoch: int, batch: int) -> int:
    """A seed of 63 bits, a hash of the three."""
    return int(np.random.SeedSequence([seed, epoch, batch]).generate_state(1, np.uint64)[0] >> 1)
