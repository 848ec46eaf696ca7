"""Callbacks for tests, to be named by `--trainer.callbacks+=`: one disturbs a run on one of its processes,
the other scores its validations."""

from __future__ import annotations

import os
import signal
from typing import Any, Literal

import pytorch_lightning as pl


class Failing(pl.Callback):
    """Fails, or is signalled, where it is told to.

    Args:
        where: Before a batch of training or of validation.
        rank: On which process.
        kind: A bug, or a signal to the process itself.
        batch: Before which batch of the run, from 1.
    """

    def __init__(
        self,
        where: Literal["batch", "validation"] = "batch",
        rank: int = 0,
        kind: Literal["bug", "SIGTERM", "SIGINT", "SIGKILL"] = "bug",
        batch: int = 3,
    ) -> None:
        self.where, self.rank, self.kind, self.left = where, rank, kind, batch

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        self._come_to("batch", trainer)

    def on_validation_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        self._come_to("validation", trainer)

    def _come_to(self, where: str, trainer: pl.Trainer) -> None:
        self.left -= where == self.where
        if self.left or where != self.where or self.rank != trainer.global_rank:
            return
        if self.kind == "bug":
            raise KeyError(f"no luck in {where}")
        os.kill(os.getpid(), signal.Signals[self.kind])


class Scored(pl.Callback):
    """Gives each epoch's validation a score, `score`, of which the second is the best."""

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        pl_module.log("score", (0.2, 0.9, 0.5)[trainer.current_epoch])
