"""What a run leaves behind beside curves and checkpoints: config.yaml, environment.json, metrics.json."""

from __future__ import annotations

import json
import math
import platform
import sys
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.cli import SaveConfigCallback
from pytorch_lightning.utilities import rank_zero_info

from storage.files import write_text
from storage.provenance import revision, versions
from training.callbacks.global_batch import global_batch, in_words, keep_global_batch


class RunRecord(SaveConfigCallback):
    """Saves the resolved configuration and the environment at the start, the final metrics at the end."""

    recorded = False
    earlier: dict[str, float] = {}  # noqa: RUF012  replaced, never mutated
    """Metrics of before a resume; a validation is not repeated for them."""

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Write config.yaml and environment.json, once, before anything long starts."""
        if stage == "fit" and not self.recorded:
            keep_global_batch(trainer, self.config.run.planned_processes)
        folder = trainer.log_dir
        if self.recorded or folder is None or trainer.fast_dev_run:
            return
        if trainer.is_global_zero:
            text = self.parser.dump(self.config, skip_none=False)
            write_text(Path(folder) / "config.yaml", text)
            environment = _environment(trainer, self.config)
            if stage == "fit":
                run, accumulation = self.config.run, self.config.trainer.accumulate_grad_batches
                batch = global_batch(trainer, run.planned_processes, accumulation)
                environment["global_batch"] = batch
                rank_zero_info(in_words(batch))
            write_text(Path(folder) / "environment.json", json.dumps(environment, indent=2))
        self.recorded = True

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Final metrics of training and its last validation."""
        _write_metrics(trainer, self.earlier)

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Take the metrics along: those of the last validation belong to a run that goes on."""
        checkpoint["metrics"] = {**self.earlier, **_metrics(trainer)}

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Remember them."""
        self.earlier = checkpoint.get("metrics", {})

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Metrics of a validation on its own."""
        if trainer.state.fn == "validate":
            _write_metrics(trainer)

    def on_test_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Metrics of the test sets."""
        _write_metrics(trainer)


def _metrics(trainer: pl.Trainer) -> dict[str, float]:
    return {key: float(value) for key, value in trainer.callback_metrics.items()}


def _write_metrics(trainer: pl.Trainer, earlier: dict[str, float] | None = None) -> None:
    folder = trainer.log_dir  # asks all processes: no process may leave before
    if folder is None or not trainer.is_global_zero or trainer.fast_dev_run:
        return
    metrics = dict(sorted({**(earlier or {}), **_metrics(trainer)}.items()))
    metrics["epoch"], metrics["step"] = _epochs(trainer), trainer.global_step
    write_text(Path(folder) / "metrics.json", json.dumps(metrics, indent=2) + "\n")


def _epochs(trainer: pl.Trainer) -> float:
    """Epochs of training behind the weights, in parts of one. (Lightning's own count of a run that
    `max_steps` ended within an epoch differs after a resume.)"""
    batches = trainer.num_training_batches
    if trainer.state.fn != "fit" or not 0 < batches < math.inf:
        return float(trainer.current_epoch)
    return round(trainer.global_step / math.ceil(batches / trainer.accumulate_grad_batches), 4)


def _environment(trainer: pl.Trainer, config: Any) -> dict[str, Any]:
    devices = [trainer.strategy.root_device.type] * trainer.world_size
    if torch.cuda.is_available():
        devices = [torch.cuda.get_device_name(trainer.strategy.root_device)] * trainer.world_size
    return {
        "command": sys.argv,
        "git": revision().rstrip("+"),
        "git_dirty": revision().endswith("+"),
        "platform": platform.platform(),
        "packages": versions(),
        "devices": devices,
        "precision": str(trainer.precision),
        "seed": config.get("seed_everything") if hasattr(config, "get") else None,
        "data": trainer.datamodule.fingerprints(),
    }
