"""Which checkpoint is the best one: a metric that validation logs, or the last where nothing is validated."""

from __future__ import annotations

import difflib

import pytorch_lightning as pl
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.utilities import rank_zero_info

from training.callbacks.eval_sets import FAMILIES, metric_key


class MonitorCheck(pl.Callback):
    """Sees to it that `checkpoint.monitor` is a metric that validation logs.

    Where no validation set gives it, best.ckpt is the last checkpoint. A name that its sets do not log ends
    the run at the first validation: Lightning would go on for days and keep nothing.
    """

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Watch nothing where no set of the metric's family is validated on."""
        sets = getattr(trainer.datamodule, "eval_sets", {}).get("val")
        if stage != "fit" or sets is None:
            return
        families = [metric_key("val", FAMILIES[type(data)], name, "") for name, data in sets]
        for checkpoint in _monitored(trainer):
            validated = trainer.limit_val_batches and checkpoint.monitor.startswith(tuple(families))
            if checkpoint.monitor.startswith("val/") and not validated:
                _keep_last(checkpoint)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """ValueError that names the nearest keys there are."""
        logged = list(trainer.callback_metrics)
        for checkpoint in _monitored(trainer) if trainer.state.fn == "fit" else []:
            if checkpoint.monitor in logged:
                continue
            if checkpoint.monitor.endswith("/selection"):  # needs ethical and adversarial advice
                _keep_last(checkpoint)
                continue
            near = difflib.get_close_matches(checkpoint.monitor, logged, n=3) or sorted(logged)
            raise ValueError(
                f"checkpoint.monitor: no metric {checkpoint.monitor!r}; there are {', '.join(near)}, ..."
            )


def _monitored(trainer: pl.Trainer) -> list[ModelCheckpoint]:
    checkpoints = [c for c in trainer.checkpoint_callbacks if isinstance(c, ModelCheckpoint)]
    return [checkpoint for checkpoint in checkpoints if checkpoint.monitor]


def _keep_last(checkpoint: ModelCheckpoint) -> None:
    rank_zero_info(
        f"no validation set gives {checkpoint.monitor} (checkpoint.monitor): best.ckpt is the last one"
    )
    checkpoint.monitor = None
