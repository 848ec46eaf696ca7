"""Validation, test and prediction on every evaluation set; which checkpoint is the best."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch.distributed as dist
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.utilities import rank_zero_info

from .families import Family, families_of

IN_PROGRESS_BAR = ("f1", "accuracy")


class EvalSets(Callback):
    """Logs the metrics of every evaluation set during validation and test; in `predict`, writes its
    predictions. A process without a batch of a set also computes its metric, because the sum runs
    over all processes.
    """

    stage: str
    families: list[Family]

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        command = trainer.state.fn.value
        self.stage = command if command in ("test", "predict") else "val"
        self.families = families_of(trainer, self.stage, pl_module)
        for family in self.families:
            family.check(self.stage)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        family = self.families[dataloader_idx]
        if trainer.predicting:
            family.predictions |= family.predict(batch, outputs)
        else:
            family.metric.update(*family.inputs(batch, outputs))

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for family in self.families:
            for name, value in family.named(family.metric.compute()):
                key, prominent = (
                    f"{self.stage}/{family.prefix}{name}",
                    name.endswith(IN_PROGRESS_BAR),
                )
                # torchmetrics squeezes some one-element results, but not all.
                pl_module.log(key, value.float().squeeze(), prog_bar=prominent)

    on_test_epoch_start = on_predict_start = on_validation_epoch_start
    on_test_batch_end = on_predict_batch_end = on_validation_batch_end
    on_test_epoch_end = on_validation_epoch_end

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        folder, own = trainer.log_dir, [family.predictions for family in self.families]
        processes = [own] * trainer.world_size
        if trainer.world_size > 1:
            dist.all_gather_object(processes, own)
        if folder is None or not trainer.is_global_zero:
            return
        predictions = Path(folder) / "predictions"
        predictions.mkdir(parents=True, exist_ok=True)
        for family, *parts in zip(self.families, *processes, strict=True):
            items = sorted(item for part in parts for item in part.items())
            family.write(dict(items), predictions)


class Watched(Callback):
    """Validates the final weights, and makes best.ckpt the last checkpoint if no set gives
    `checkpoint.monitor`."""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Watch nothing if no validation set is of the metric's family."""
        for checkpoint, monitor in _monitors(trainer):
            sets = families_of(trainer, "val", pl_module) if trainer.limit_val_batches else []
            if not any(monitor.startswith(f"val/{family.prefix}") for family in sets):
                _keep_last(checkpoint)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """ValueError for an unknown metric; a selection score needs ethical and
        adversarial advice.
        """
        metrics = trainer.callback_metrics
        for checkpoint, monitor in _monitors(trainer):
            if monitor in metrics:
                continue
            if monitor.endswith("/selection"):
                _keep_last(checkpoint)
                continue
            near = [key for key in metrics if key.startswith(monitor.rpartition("/")[0])]
            raise ValueError(
                f"checkpoint.monitor: no metric {monitor!r}; there are {', '.join(near)}"
            )

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """When `max_steps` ends a run, use early stopping, after which Lightning validates, so that
        metrics.json and best.ckpt include the last weights."""
        if trainer.global_step == trainer.max_steps:
            trainer.should_stop = True


def _monitors(trainer: Trainer) -> Iterator[tuple[Any, str]]:
    """The checkpoint callbacks of `fit` that watch a metric of validation, and its name."""
    for checkpoint in trainer.checkpoint_callbacks if trainer.state.fn == "fit" else []:
        monitor = getattr(checkpoint, "monitor", None) or ""
        if monitor.startswith("val/"):
            yield checkpoint, monitor


def _keep_last(checkpoint: Any) -> None:
    rank_zero_info(
        f"no validation set gives {checkpoint.monitor} (checkpoint.monitor), so best.ckpt is the "
        "last one"
    )
    checkpoint.monitor = None
