"""Fits of this project alone: what its callbacks cost, and a decoder with LoRA adapters and group
losses.
"""

import json
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from typing import Any
from unittest.mock import patch

import pandas as pd
import pytorch_lightning as pl
import torch

import interventune
from benchmarks.side_by_side import SHAPES, Shape, Size, Turn, in_turns, now, timed
from interventune.training.callbacks.eval_sets import EvalSets
from interventune.training.cli import main
from interventune.training.modules.fine_tuning import FineTuning

STEPS = {"cpu": 20, "gpu": 200}


class Clock(pl.Callback):
    """Measure from the start of training until its last epoch ends, with the validations between;
    count the tokens.
    """

    tokens: Any = 0

    def on_train_start(self, *_: Any) -> None:
        self.began = now()

    def on_train_batch_end(
        self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.tokens += sum(part.inputs["attention_mask"].sum() for part in batch if part)

    def on_train_epoch_end(self, *_: Any) -> None:
        self.seconds = now() - self.began


def fit(root: str, shape: Shape, seed: int, *flags: str) -> tuple[Clock, pl.Trainer]:
    """Run `interventune train fit` with random weights."""
    command = [
        "fit",
        *flags,
        "--backbone.checkpoint=random",
        f"--backbone.architecture={shape.architecture}",
        f"--backbone.config={json.dumps(shape.config)}",
        f"--run.root={root}/runs",
        f"--data.cache={root}/cache",
        f"--seed_everything={seed}",
        "--trainer.callbacks+=benchmarks.fits.Clock",
        "--trainer.devices=1",
        "--trainer.enable_progress_bar=false",
    ]
    trainer = main(command)
    clock = next(callback for callback in trainer.callbacks if isinstance(callback, Clock))
    return clock, trainer


def short_fit(
    root: str, experiment: str, name: str, size: Size, seed: int, *flags: str
) -> tuple[Turn, pl.Trainer]:
    """Run an experiment with two validations on some of the built-in stories, with the shape of
    that name; return the steps per second.
    """
    steps = STEPS[size]
    clock, trainer = fit(
        root,
        SHAPES[name][size],
        seed,
        "-c",
        experiment,
        "--data.limit_train_qa=2000",
        "--data.limit_val_qa=300",
        "--data.limit_train_groups=400",
        "--data.limit_val_groups=100",
        *flags,
        "--backbone.tokenizer=stories",
        f"--trainer.max_steps={steps}",
        f"--trainer.val_check_interval={steps // 2}",
        "--trainer.check_val_every_n_epoch=null",
    )
    return timed(steps, float(clock.tokens), clock.seconds), trainer


HOOKS = ((EvalSets, "on_validation_batch_end"), (FineTuning, "on_train_batch_end"))
"""What metrics and checks of the loss do in each step."""


def with_hooks(hooks: bool, experiment: str, size: Size, seed: int) -> Turn:
    """Fit with or without HOOKS."""
    flags = ("--trainer.precision=auto", "--checkpoint.monitor=null")
    with tempfile.TemporaryDirectory() as root, ExitStack() as stack:
        for owner, name in () if hooks else HOOKS:
            stack.enter_context(patch.object(owner, name, lambda *_, **__: None))
        turn, _ = short_fit(root, experiment, "callbacks", size, seed, *flags)
    return turn


def callbacks(size: Size, *, repeats: int) -> pd.DataFrame:
    """Return steps per second with and without measuring bias, cosines and answers."""
    tables = []
    for experiment in ("lei_few_shot", "stories_ibt"):
        systems = {
            "callbacks on": partial(with_hooks, True, experiment, size),
            "callbacks off": partial(with_hooks, False, experiment, size),
        }
        tables.append(in_turns(f"{experiment}/{size}", "steps/s", systems, range(repeats + 1)))
    return pd.concat(tables)


def adapters(size: Size, seed: int) -> Turn:
    """Train LoRA adapters with the group losses, then evaluate the checkpoint."""
    flags = ["--data.groups_per_class=4", "--data.qa_batch_size=16", "--backbone.lora_rank=8"]
    if torch.cuda.is_available():
        flags.append("--trainer.precision=bf16-true")
    with tempfile.TemporaryDirectory() as root:
        turn, trainer = short_fit(root, "lei_few_shot", "decoder", size, seed, *flags)
        checkpoint = f"{trainer.log_dir}/checkpoints/last.ckpt"
        began = time.perf_counter()
        interventune.evaluate("bias", checkpoint=[checkpoint], data=["stories:heldout"], limit=60)
        rate = 180 / (time.perf_counter() - began)
    turn.notes["groups evaluated/s, with loading"] = rate
    return turn


def decoder(size: Size, *, repeats: int) -> pd.DataFrame:
    """Return steps and tokens per second of LoRA adapters of rank 8, and the largest memory."""
    systems = {"interventune": partial(adapters, size)}
    return in_turns(f"lora/{size}", "steps/s", systems, range(repeats + 1))
