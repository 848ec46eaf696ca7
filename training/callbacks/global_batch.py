"""How many batches an optimizer step takes, over all processes: kept where it can be, told in any case."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl


def keep_global_batch(trainer: pl.Trainer, planned: int) -> None:
    """Change accumulation so that a step takes as many batches as it would with `planned` processes.

    Args:
        trainer: its processes are running.
        planned: number of processes that the configuration was written for; 0 leaves it as it is. Where the
            number of batches cannot be split evenly, the nearest number of them is taken.

    Raises:
        ValueError: `planned` is negative.
    """
    if planned < 0:
        raise ValueError(f"run.planned_processes must not be negative, got {planned}")
    if planned:
        wanted = planned * trainer.accumulate_grad_batches
        trainer.accumulate_grad_batches = max(1, round(wanted / trainer.world_size))


def global_batch(trainer: pl.Trainer, planned: int, accumulation: int) -> dict[str, Any]:
    """What a step takes, as plain values for environment.json.

    Args:
        trainer: its processes are running, its DataModule is set up.
        planned: as in `keep_global_batch`.
        accumulation: what the configuration says.
    """
    return {
        "batches_per_step": trainer.world_size * trainer.accumulate_grad_batches,
        "processes": trainer.world_size,
        "accumulate_grad_batches": trainer.accumulate_grad_batches,
        "configured_batches_per_step": (planned or 1) * accumulation,
        "batch": batch_sizes(trainer.datamodule),
    }


def batch_sizes(data: Any) -> dict[str, int]:
    """The options that make up one batch of one process, of those that apply."""
    train = data.train_set
    sizes: dict[str, int] = {}
    if train is not None and train.groups is not None:
        sizes["groups_per_class"] = data.groups_per_class
    if train is not None and train.qa is not None:
        name = "qa_batch_tokens" if data.qa_batch_tokens else "qa_batch_size"
        sizes[name] = getattr(data, name)
    if train is not None and train.choices is not None:
        sizes["choices.batch_size"] = data.choices.batch_size
    return sizes


def in_words(batch: dict[str, Any]) -> str:
    """`global_batch` as one line."""
    sizes = ", ".join(f"{name} {value}" for name, value in batch["batch"].items())
    taken, configured = batch["batches_per_step"], batch["configured_batches_per_step"]
    line = (
        f"global batch: a step takes {taken} {'batch' if taken == 1 else 'batches'} ({sizes}), "
        f"{batch['processes']} processes x {batch['accumulate_grad_batches']} accumulated"
    )
    if taken != configured:
        line += f"; THE CONFIGURATION SAYS {configured} (see run.planned_processes)"
    return line
