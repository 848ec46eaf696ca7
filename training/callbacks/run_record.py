"""Files of a run besides curves and checkpoints: config.yaml, environment.json, metrics.json."""

from __future__ import annotations

import json
import math
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from jsonargparse import Namespace
from pytorch_lightning import Callback, LightningModule, Trainer

from interventune.storage.documents import load_yaml, write_text
from interventune.storage.json_files import load_json, plain_json
from interventune.storage.provenance import revision, versions
from interventune.training.resuming import run_folder


class RunRecord(Callback):
    """Saves the full configuration and the environment at the start, the final metrics
    at the end.

    Args:
        text: config.yaml, with comments on what changed when the run was resumed.
        seed: of the run.
        resumed: whether the weights come from a checkpoint.
    """

    def __init__(self, text: str, *, seed: int, resumed: bool) -> None:
        self.text, self.seed, self.resumed = text, seed, resumed
        self.earlier: Mapping[str, float] = {}
        """Metrics from before a resume, so that a validation need not be repeated for them."""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Write config.yaml and environment.json, before any long work."""
        folder = trainer.log_dir
        if folder is None or trainer.fast_dev_run:
            return
        saved = Path(folder) / "config.yaml"
        # A validation keeps the files of a fit, and so does a resume until it trains.
        new = stage == "train" or (stage == "fit" and not self.resumed)
        if trainer.is_global_zero and (new or not saved.exists()):
            write_text(saved, self.text)
            environment = _environment(trainer) | {"seed": self.seed}
            write_text(saved.with_name("environment.json"), json.dumps(environment, indent=2))

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Record a resume, whose first step already follows its own schedule."""
        if self.resumed:
            self.setup(trainer, pl_module, "train")
            for configured in trainer.lr_scheduler_configs:
                scheduler = configured.scheduler
                scheduler._update_lr(scheduler.last_epoch)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        _write_metrics(trainer, {**self.earlier, **best_score(trainer)})

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Store the metrics: a resumed run needs those of its last validation."""
        checkpoint["metrics"] = {**self.earlier, **_metrics(trainer)}

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self.earlier = checkpoint.get("metrics", {})

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write metrics.json, except during a fit."""
        if trainer.state.fn != "fit":
            _write_metrics(trainer, {})

    on_test_end = on_validation_end


def as_saved(parser: Any, config: Namespace) -> str:
    """Return a run's configuration as YAML with which every command can repeat it elsewhere."""
    config = config.clone()
    saved = Path(config.run.root, config.run.name, config.run.version, "config.yaml").resolve()
    config.run.version = ""
    if config.ckpt_path and saved.parent == run_folder(config.ckpt_path):
        earlier = load_yaml(saved, dict[str, Any]) if saved.exists() else {}
        config.ckpt_path = earlier.get("ckpt_path")
    return str(parser.dump(config, skip_unset=False, skip_validation=True))  # was parsed


def best_score(trainer: Trainer) -> dict[str, float]:
    """Return `best/METRIC`, by which best.ckpt was chosen; empty if no metric did."""
    ours = trainer.checkpoint_callbacks[-2]  # before LastCheckpoint
    score = ours.best_model_score
    return {f"best/{ours.monitor}": float(score)} if ours.monitor and score is not None else {}


def _metrics(trainer: Trainer) -> dict[str, float]:
    return {key: float(value) for key, value in trainer.callback_metrics.items()}


def _write_metrics(trainer: Trainer, earlier: Mapping[str, float]) -> None:
    folder = trainer.log_dir  # a collective operation: all processes must reach it
    if folder is None or not trainer.is_global_zero or trainer.fast_dev_run:
        return
    path = Path(folder) / "metrics.json"
    before = load_json(path) if trainer.state.fn != "fit" and path.exists() else {}  # of the run
    metrics = dict(sorted({**before, **earlier, **_metrics(trainer)}.items()))
    # Epochs that the weights were trained, as a fraction. (Lightning's own count differs after a
    # resume, if `max_steps` ended the run within an epoch.)
    epochs, batches = float(trainer.current_epoch), trainer.num_training_batches
    if trainer.state.fn == "fit" and 0 < batches < math.inf:
        steps_per_epoch = math.ceil(batches / trainer.accumulate_grad_batches)
        epochs = round(trainer.global_step / steps_per_epoch, 4)
    if not before:
        metrics |= {"epoch": epochs, "step": trainer.global_step}
    write_text(path, json.dumps(plain_json(metrics), indent=2) + "\n")


def _environment(trainer: Trainer) -> dict[str, Any]:
    device = trainer.strategy.root_device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return {
        "command": sys.argv,
        "git": revision(),
        "platform": platform.platform(),
        "packages": versions(),
        "devices": [name] * trainer.world_size,
        "accumulate_grad_batches": trainer.accumulate_grad_batches,
        "precision": str(trainer.precision),
        "data": trainer.datamodule.fingerprints(),
    }
