"""Values of the trainer's keys that Lightning itself meets with a traceback, or not at all."""

from __future__ import annotations

import difflib
from typing import Any

import pytorch_lightning as pl


def check_trainer_keys(trainer: Any) -> None:
    """Look at the configuration of the trainer before anything is built.

    Raises:
        ValueError: a key has a value that cannot work; by name.
    """
    if trainer.accumulate_grad_batches < 1:
        raise ValueError(
            f"trainer.accumulate_grad_batches must be at least 1, got {trainer.accumulate_grad_batches}"
        )
    devices = trainer.devices
    words = isinstance(devices, str) and devices != "auto"
    if words and not all(part.strip().lstrip("-").isdigit() for part in devices.split(",")):
        raise ValueError(f"trainer.devices: {devices!r} is neither auto, nor a number, nor a list of indices")


class MonitorCheck(pl.Callback):
    """Ends a run whose `checkpoint.monitor` no validation has logged at the first one: Lightning would
    go on for days and keep nothing.

    Args:
        monitor: key of the metric; empty where none is watched.
    """

    def __init__(self, monitor: str) -> None:
        self.monitor = monitor

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """ValueError that names the nearest keys there are."""
        found = list(trainer.callback_metrics)
        if trainer.state.fn != "fit" or not self.monitor or self.monitor in found:
            return
        near = difflib.get_close_matches(self.monitor, found, n=3) or sorted(found)
        raise ValueError(f"checkpoint.monitor: no metric {self.monitor!r}; there are {', '.join(near)}, ...")
