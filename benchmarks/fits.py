"""Fits of this project alone: what its callbacks cost, and a decoder with LoRA adapters and group
losses.
"""

from __future__ import annotations

import json
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pandas as pd
import pytorch_lightning as pl
import torch
from transformers import AutoConfig, AutoModelForCausalLM

import interventune
from benchmarks import likelihoods
from benchmarks.side_by_side import Turn, in_turns, table
from benchmarks.training import ROBERTA, now, sizes
from interventune.data_modules.stories.questions import vocabulary
from interventune.data_modules.stories.word_tokenizer import build_tokenizer
from interventune.training.callbacks.eval_sets import EvalSets
from interventune.training.cli import main
from interventune.training.stopping.finite_loss import FiniteLoss

ENCODERS = {"tiny": sizes(2, 64, 2, 320, **ROBERTA), "gpu": sizes(12, 768, 12, 50_265, **ROBERTA)}
ENDS = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 3}
DECODERS = {
    "tiny": sizes(2, 64, 2, 320, num_key_value_heads=1, head_dim=32, **ENDS),
    "gpu": sizes(16, 2048, 32, 128_256, num_key_value_heads=8, head_dim=64, **ENDS),
}
"""`gpu`: Llama 3.2's with 1 B parameters."""
QUIET = ("--run.wandb=off", "--trainer.enable_progress_bar=false", "--trainer.devices=1")
WARM = 10
"""Steps before the clock starts."""


class StepClock(pl.Callback):
    """Measure all steps after the first ones, with the validations between them."""

    tokens: Any = 0

    def on_train_batch_end(
        self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step == WARM:
            self.began = now()
        elif trainer.global_step > WARM:
            for part in (batch.qa, batch.groups):
                if part is not None:
                    self.tokens = self.tokens + part.inputs["attention_mask"].sum()

    def on_train_end(self, trainer: Any, *_: Any) -> None:
        self.seconds, self.steps = now() - self.began, trainer.global_step - WARM


def fit(root: str, experiment: str, steps: int, *flags: str) -> tuple[StepClock, pl.Trainer]:
    """Run `interventune train fit` with random weights and the words of the built-in stories."""
    own = (
        "--backbone.checkpoint=random",
        "--backbone.tokenizer=stories",
        f"--run.root={root}/runs",
    )
    clock = ("--trainer.callbacks+=benchmarks.fits.StepClock", f"--data.cache={root}/cache")
    to_end = (f"--trainer.max_steps={steps}", "--trainer.max_epochs=-1")
    validated = (
        f"--trainer.val_check_interval={steps // 2}",
        "--trainer.check_val_every_n_epoch=null",
    )
    few = ["--data.limit_train_qa=2000", "--data.limit_val_qa=300"]
    if experiment == "lei_few_shot":
        few += ["--data.limit_train_groups=400", "--data.limit_val_groups=100"]
    trainer = main(
        ["fit", "-c", experiment, *QUIET, *own, *clock, *to_end, *validated, *few, *flags]
    ).trainer
    return next(
        callback for callback in trainer.callbacks if isinstance(callback, StepClock)
    ), trainer


def with_callbacks(measured: bool, experiment: str, shape: str, steps: int, seed: int) -> Turn:
    """Fit with two validations; without metrics and without checks of the loss unless
    `measured`.
    """
    config = json.dumps(ENCODERS[shape])
    with ExitStack() as stack:
        root = stack.enter_context(tempfile.TemporaryDirectory())
        hooks = ((EvalSets, "on_validation_batch_end"), (FiniteLoss, "on_train_batch_end"))
        for owner, name in () if measured else hooks:
            stack.enter_context(patch.object(owner, name, lambda *_, **__: None))
        flags = (
            "--backbone.architecture=roberta",
            f"--backbone.config={config}",
            "--trainer.precision=auto",
        )
        clock, _ = fit(
            root,
            experiment,
            steps,
            *flags,
            f"--seed_everything={seed}",
            "--checkpoint.monitor=null",
        )
    return Turn(clock.steps / clock.seconds, {"tokens/s": float(clock.tokens) / clock.seconds})


def callbacks(shape: str, steps: int, *, repeats: int) -> pd.DataFrame:
    """Return steps per second with and without measuring bias, cosines and answers."""
    tables = []
    for experiment in ("lei_few_shot", "stories_ibt"):
        systems = {
            name: partial(with_callbacks, measured, experiment, shape, steps)
            for name, measured in {"callbacks on": True, "callbacks off": False}.items()
        }
        made = in_turns(systems, [(seed,) for seed in range(repeats + 1)])
        tables.append(table(f"{experiment}/{shape}", "steps/s", made))
    return pd.concat(tables)


def likelihoods_of(shape: str, source: str, folder: str, *, repeats: int) -> pd.DataFrame:
    """Compare likelihoods of a folder's decoder, or of a random one of this shape."""
    if folder != "random":
        return likelihoods.measure(source, folder, repeats=repeats)
    tokenizer = build_tokenizer("llama", sorted({*vocabulary(), "Question", "Answer", ":", "."}))
    with tempfile.TemporaryDirectory() as made:
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **DECODERS[shape]))
        for part in (model, tokenizer):
            part.save_pretrained(made)
        return likelihoods.measure(source, made, repeats=repeats)


def adapters(shape: str, steps: int, seed: int) -> Turn:
    """Train LoRA adapters with the group losses, then evaluate the checkpoint."""
    with tempfile.TemporaryDirectory() as root:
        flags = ["--data.groups_per_class=4", "--data.qa_batch_size=16", "--backbone.lora_rank=8"]
        flags += [
            "--backbone.architecture=llama",
            f"--backbone.config={json.dumps(DECODERS[shape])}",
        ]
        half = ("--trainer.precision=bf16-true",) if torch.cuda.is_available() else ()
        clock, trainer = fit(
            root, "lei_few_shot", steps, f"--seed_everything={seed}", *flags, *half
        )
        notes = {"tokens/s": float(clock.tokens) / clock.seconds}
        if torch.cuda.is_available():
            notes["GiB"] = torch.cuda.max_memory_allocated() / 2**30
        checkpoint = str(Path(str(trainer.log_dir)) / "checkpoints" / "last.ckpt")
        began = time.perf_counter()
        interventune.evaluate("bias", checkpoint=[checkpoint], data=["stories:heldout"], limit=60)
        notes["groups evaluated/s, with loading"] = 180 / (time.perf_counter() - began)
    return Turn(clock.steps / clock.seconds, notes)


def decoder(shape: str, steps: int, *, repeats: int) -> pd.DataFrame:
    """Return steps and tokens per second of LoRA adapters of rank 8, and the largest memory."""
    systems = {"interventune": partial(adapters, shape, steps)}
    made = in_turns(systems, [(seed,) for seed in range(repeats + 1)])
    return table(f"lora/{shape}", "steps/s", made)
