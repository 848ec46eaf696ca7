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
        where: In the setup, or before a batch of training or of validation.
        rank: On which process; -1 on all.
        kind: What a user got wrong, a bug, or a signal to the process itself.
        batch: Before which batch of the run, from 1.
    """

    def __init__(
        self,
        where: Literal["setup", "batch", "validation"] = "batch",
        rank: int = 0,
        kind: Literal["mistake", "bug", "SIGTERM", "SIGINT", "SIGKILL"] = "bug",
        batch: int = 3,
    ) -> None:
        self.where, self.rank, self.kind, self.left = where, rank, kind, batch

    def setup(self, trainer: pl.Trainer, *_: Any, **__: Any) -> None:
        if self.where == "setup":
            self.left = 1
        self._come_to("setup", trainer)

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        self._come_to("batch", trainer)

    def on_validation_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        self._come_to("validation", trainer)

    def _come_to(self, where: str, trainer: pl.Trainer) -> None:
        self.left -= where == self.where
        if self.left or where != self.where or self.rank not in (-1, trainer.global_rank):
            return
        message = f"no luck in {where} on process {trainer.global_rank}"
        if self.kind in ("mistake", "bug"):
            raise {"mistake": ValueError, "bug": KeyError}[self.kind](message)
        os.kill(os.getpid(), signal.Signals[self.kind])


class Scored(pl.Callback):
    """Gives each epoch's validation a score, `score`, of which the second is the best."""

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        pl_module.log("score", (0.2, 0.9, 0.5)[trainer.current_epoch])
