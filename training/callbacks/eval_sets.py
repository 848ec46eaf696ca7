"""What metric callbacks share: they follow every evaluation set through validation and test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytorch_lightning as pl

from data_modules.batching.eval_sets import MAIN, EvalSet

Outputs = Mapping[str, Any]


def metric_key(stage: str, family: str, name: str, metric: str) -> str:
    """`<stage>/<family>/[<set>/]<metric>`; the main set carries no name."""
    parts = [stage, family, metric] if name == MAIN else [stage, family, name, metric]
    return "/".join(parts)


class EvalSetCallback(pl.Callback):
    """Calls `start`, `update` and `finish` alike for validation (`val`) and test (`test`)."""

    def start(self, stage: str) -> None:
        """Forget the last epoch."""

    def update(self, module: pl.LightningModule, outputs: Outputs, batch: Any, data: EvalSet) -> None:
        """Take in the predictions of one batch of one set."""

    def finish(self, module: pl.LightningModule, stage: str, sets: list[EvalSet]) -> None:
        """Log what the epoch gave."""

    def on_validation_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.start("val")

    def on_test_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.start("test")

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Outputs,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        self.update(pl_module, outputs, batch, _sets(trainer, "val")[dataloader_idx])

    def on_test_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Outputs,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        self.update(pl_module, outputs, batch, _sets(trainer, "test")[dataloader_idx])

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.finish(pl_module, "val", _sets(trainer, "val"))

    def on_test_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.finish(pl_module, "test", _sets(trainer, "test"))


def _sets(trainer: pl.Trainer, stage: str) -> list[EvalSet]:
    sets: list[EvalSet] = trainer.datamodule.eval_sets[stage]
    return sets
