"""Files of a run besides curves and checkpoints: config.yaml, environment.json, metrics.json. A run
that resumes is still the run that its config.yaml describes.
"""

import json
import math
import platform
import re
import sys
from pathlib import Path
from typing import Any

import torch
from jsonargparse import Namespace
from pytorch_lightning import Callback, LightningModule, Trainer

from interventune.storage.documents import (
    Values,
    load_json,
    load_yaml,
    plain_json,
    read_text,
    source_digest,
    write_text,
)
from interventune.storage.provenance import revision, versions

MAY_CHANGE = re.compile(
    r"(ckpt_path|run|checkpoint|(data|model)(\.init_args)?\.(num_workers|cache|reference_cache)"
    r"|trainer\.(logger|callbacks|devices|accelerator|num_nodes|strategy|max_time|log_every_n_steps"
    r"|enable_progress_bar))(\.|$)"
)
"""Settings, or sections, that may change. docs/scale.md lists them too."""
LIMITS = ("trainer.max_epochs", "trainer.max_steps")
"""They may change if one of them grows: from epochs to more steps, for example."""
PROCESSES = ("trainer.devices", "trainer.num_nodes")
BATCH = "trainer.accumulate_grad_batches"
"""May change with the number of processes, so that a step takes as many questions as before."""


class RunRecord(Callback):
    """Saves the full configuration and the environment at the start, the final metrics
    at the end.

    Args:
        text: config.yaml, with comments on what changed when the run was resumed.
        resumed: whether a fit goes on from a checkpoint.
    """

    def __init__(self, text: str, *, resumed: bool) -> None:
        self.text = text
        self.resumed = resumed
        self.earlier = Values()
        """Metrics from before a resume, so that a validation need not be repeated for them."""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Write config.yaml and environment.json, before any long work."""
        folder = trainer.log_dir
        if folder is None or trainer.fast_dev_run:
            return
        saved = Path(folder) / "config.yaml"
        # A resume keeps the files until it trains.
        if trainer.is_global_zero and (stage == "train" or not self.resumed):
            write_text(saved, self.text)
            environment = json.dumps(_environment(trainer), indent=2)
            write_text(saved.with_name("environment.json"), environment)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Record a resume, whose first step already follows its own schedule."""
        if self.resumed:
            self.setup(trainer, pl_module, "train")
            for configured in trainer.lr_scheduler_configs:
                scheduler = configured.scheduler
                scheduler._update_lr(scheduler.last_epoch)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        _write_metrics(trainer, self.earlier | best_score(trainer))

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: Values
    ) -> None:
        """Store the metrics: a resumed run needs those of its last validation."""
        checkpoint["metrics"] = self.earlier | _metrics(trainer)

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: Values
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
        earlier = load_yaml(saved, Values) if saved.exists() else {}
        config.ckpt_path = earlier.get("ckpt_path")
    return str(parser.dump(config, skip_unset=False, skip_validation=True))  # was parsed


def run_folder(checkpoint: str) -> Path:
    """Return the folder of the run that wrote a checkpoint."""
    return Path(checkpoint).resolve().parent.parent


def changes(config: Values, folder: Path, step: int) -> list[str]:
    """Return a comment for every setting that differs from those of the run in `folder`, after the
    comments in its config.yaml. ValueError for one that must not, or without that file.
    """
    from transformers.utils.generic import flatten_dict  # takes a second, needed only here

    saved = folder / "config.yaml"
    now = flatten_dict(config)
    before = flatten_dict(load_yaml(saved, Values))
    comments = [line for line in read_text(saved).splitlines() if line.startswith("#")]
    longer = any(_number(now.get(key)) > _number(before.get(key)) for key in LIMITS)
    regrouped = any(now.get(key) != before.get(key) for key in PROCESSES)
    for key in {**now, **before}:
        if (new := now.get(key)) != (old := before.get(key)):
            flag = key.replace(".init_args", "")
            was = json.dumps(old, default=str)
            change = f"{flag} {json.dumps(new, default=str)} (before: {was})"
            comments.append(f"# from step {step}: {change}")
            allowed = MAY_CHANGE.match(key) or (longer and key in LIMITS)
            if not allowed and not (regrouped and key == BATCH):
                raise ValueError(
                    f"{change}: differs from {saved}; resume with the old value, or start anew "
                    "with another --run.version, from its weights with --backbone.checkpoint"
                )
    return comments


def changed_data(folder: Path) -> str:
    """Return the first file that the run in `folder` has read and that has changed since; "" for
    none.
    """
    before = load_json(folder / "environment.json", Values)["data"]
    return next((path for path, digest in before.items() if source_digest(path) != digest), "")


def refuse_other_data(folder: Path) -> None:
    """ValueError if a file is not the one that the run in `folder` has read."""
    if changed := changed_data(folder):
        raise ValueError(
            f"{changed}: has changed since {folder} began; restore it, or start in another folder"
        )


def _number(limit: int | None) -> float:
    return math.inf if limit in (None, -1) else limit


def best_score(trainer: Trainer) -> dict[str, float]:
    """Return `best/METRIC`, by which best.ckpt was chosen; empty if no metric did."""
    ours = trainer.checkpoint_callbacks[-2]  # before LastCheckpoint
    score = ours.best_model_score
    return {f"best/{ours.monitor}": float(score)} if ours.monitor and score is not None else {}


def _metrics(trainer: Trainer) -> dict[str, float]:
    return {key: float(value) for key, value in trainer.callback_metrics.items()}


def _write_metrics(trainer: Trainer, earlier: Values) -> None:
    folder = trainer.log_dir  # a collective operation: all processes must reach it
    if folder is None or not trainer.is_global_zero or trainer.fast_dev_run:
        return
    path = Path(folder) / "metrics.json"
    metrics = dict(sorted((earlier | _metrics(trainer)).items()))
    # Epochs that the weights were trained, as a fraction. (Lightning's own count differs after a
    # resume, if `max_steps` ended the run within an epoch.)
    epochs = float(trainer.current_epoch)
    batches = trainer.num_training_batches
    if 0 < batches < math.inf:
        done = trainer.fit_loop.epoch_loop.batch_progress.total.processed
        epochs = round(done / batches, 4)
    metrics |= {"epoch": epochs, "step": trainer.global_step}
    write_text(path, json.dumps(plain_json(metrics), indent=2) + "\n")


def _environment(trainer: Trainer) -> Values:
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
        "data": trainer.datamodule.fingerprints()
        | {path: source_digest(path) for path in trainer.lightning_module.reads},
        "seed": trainer.lightning_module.run_seed,
    }
