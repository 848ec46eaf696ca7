"""Callbacks for tests, to be named by `--trainer.callbacks+=`."""

import os
import signal
from itertools import chain
from typing import Any

import pytorch_lightning as pl
import torch
import torch.distributed as dist

from interventune.data_modules.batching.candidates import ChoiceBatch
from interventune.data_modules.batching.data_module import BatchIndex

NEAR = 1e-6
"""Relative to the norm of all gradients together; some parts of models compute in float32."""


class Failing(pl.Callback):
    """Fails (a `bug`), or gets a signal (`kind`), on that `rank` before that `batch` of `at`."""

    def __init__(self, at: str = "batch", rank: int = 0, kind: str = "bug", batch: int = 3) -> None:
        self.at, self.rank, self.kind, self.left = at, rank, kind, batch

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        self._come_to("batch", trainer)

    def on_validation_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        self._come_to("validation", trainer)

    def _come_to(self, at: str, trainer: pl.Trainer) -> None:
        self.left -= at == self.at
        if self.left or at != self.at or self.rank != trainer.global_rank:
            return
        if self.kind == "bug":
            raise KeyError(f"no luck in {at}")
        os.kill(os.getpid(), signal.Signals[self.kind])


class Scored(pl.Callback):
    """Gives each epoch's validation a score, `score`, of which the second is the best."""

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        pl_module.log("score", (0.2, 0.9, 0.5)[trainer.current_epoch])


def samples_of(batch: Any) -> BatchIndex:
    """The samples that a batch itself says that it has."""
    if isinstance(batch, ChoiceBatch):
        return BatchIndex((), tuple(batch.example_B.tolist()))
    groups = () if batch.groups is None else tuple(batch.groups.group_B.tolist())
    return BatchIndex(groups, () if batch.qa is None else tuple(batch.qa.feature_B.tolist()))


class WholeBatch(pl.Callback):
    """Compares each step's gradient with that of one batch of the samples of all processes."""

    def __init__(self) -> None:
        self.seen: list[BatchIndex] = []
        self.steps: list[int] = []

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, *_: Any) -> None:
        pl_module.eval()  # dropout is drawn for each batch
        self.seen.append(samples_of(batch))

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        seen, self.seen = self.seen, []
        self.steps.append(len(seen))
        if trainer.world_size > 1:
            parts: list[Any] = [None] * trainer.world_size
            dist.all_gather_object(parts, seen)
            seen = [*chain(*parts)]
        groups, questions = (tuple(chain(*part)) for part in zip(*seen, strict=True))
        data: pl.LightningDataModule = trainer.datamodule
        choices = data.kinds == ("choices",)
        batch = data.train_set[list(questions) if choices else BatchIndex(groups, questions)]
        names, weights = zip(*pl_module.named_parameters(), strict=True)
        with torch.enable_grad():
            losses = pl_module.losses(batch)
            total = sum(pl_module.weights.get(name, 1) * loss for name, loss in losses.items())
            used = [weight for weight in weights if weight.requires_grad]
            expected = torch.autograd.grad(total, used, allow_unused=True)
        pairs = [
            (weight.grad.flatten(), gradient.flatten())
            for weight, gradient in zip(used, expected, strict=True)
            if weight.grad is not None and gradient is not None
        ]
        computed, whole = map(torch.cat, zip(*pairs, strict=True))
        assert whole.norm() > 0, names
        off = float((computed - whole).norm() / whole.norm())
        assert off <= NEAR, f"step {len(self.steps)}, of {len(seen)} batches: {off:.2e}"
