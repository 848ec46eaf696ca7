"""The training loops that are compared: ours, Hugging Face's Trainer twice, plain Lightning.

Each is a function of a job, a file of questions and a seed that trains a fresh model on all windows of the
file and measures its last epoch. All read the same windows.
"""

from __future__ import annotations

import resource
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.clock import EpochClock, Stopwatch
from benchmarks.turns import Turn
from benchmarks.workload import ENCODING

PAD_TO = 16


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is trained, and how.

    Args:
        architecture: row of the table of backbones.
        config: transformers' configuration of the encoder.
        device: `cpu` or `cuda`.
        batch_size: windows of a batch, of all but ours and run_qa's defaults.
        epochs: how many; the last one is timed.
        workers: processes that build batches, where the system is tuned.
        flags: further arguments of our command line.
        tokenizer: folder of the tokenizer.
    """

    architecture: str
    config: dict[str, Any]
    device: str = "cpu"
    batch_size: int = 16
    epochs: int = 1
    workers: int = 0
    flags: tuple[str, ...] = ()
    tokenizer: str = ""


def fit_flags(job: Job, file: Path, seed: int, root: str) -> list[str]:
    """Our command line for a job: what configs/base.yaml says, nothing that makes it faster; runs and cache
    under `root`."""
    config = ", ".join(f"{key}: {value}" for key, value in job.config.items())
    return [
        "fit",
        "--model=training.modules.qa.QAModule",
        f"--backbone.architecture={job.architecture}",
        "--backbone.checkpoint=random",
        f"--backbone.tokenizer={job.tokenizer}",
        f"--backbone.config={{{config}}}",
        f"--data.train_qa={file}",
        f"--seed_everything={seed}",
        f"--run.root={root}/runs",
        f"--data.cache={root}/cache",
        "--run.wandb=off",
        f"--trainer.accelerator={'cpu' if job.device == 'cpu' else 'gpu'}",
        f"--trainer.max_epochs={job.epochs}",
        "--trainer.enable_progress_bar=false",
        *([f"--data.num_workers={job.workers}"] if job.workers else []),
        *job.flags,
    ]


def interventune(job: Job, file: Path, seed: int) -> Turn:
    """Ours: `python -m training fit` with its defaults.

    Raises:
        ValueError: the command line refuses the flags of the job.
    """
    from training.cli import main

    with tempfile.TemporaryDirectory() as root:
        flags = [*fit_flags(job, file, seed, root), "--trainer.devices=1"]
        try:
            cli = main([*flags, "--trainer.callbacks+=benchmarks.clock.EpochClock"])
        except SystemExit as stop:  # argparse's way to refuse, which would end the whole benchmark
            raise ValueError(f"training fit ended with {stop.code}: {' '.join(job.flags)}") from stop
    clock = next(callback for callback in cli.trainer.callbacks if isinstance(callback, EpochClock))
    return _measured(job, clock.watch)


def trainer_defaults(job: Job, file: Path, seed: int) -> Turn:
    """Trainer as run_qa.py sets it up: rows padded to 384, float32, 8 a batch, shuffled."""
    import transformers

    rows = windows(job, file, pad=True)
    return _hugging_face(job, rows, seed, transformers.default_data_collator, {})


def trainer_tuned(job: Job, file: Path, seed: int) -> Turn:
    """Trainer as somebody sets it up who knows it: bfloat16, similar lengths together, padded to the longest
    of the batch and a multiple of 16, our batch size, the fused optimizer."""
    from transformers import AutoTokenizer, DataCollatorWithPadding

    collator = DataCollatorWithPadding(
        AutoTokenizer.from_pretrained(job.tokenizer), pad_to_multiple_of=PAD_TO
    )
    options = {
        "bf16": True,
        "train_sampling_strategy": "group_by_length",
        "per_device_train_batch_size": job.batch_size,
        "optim": "adamw_torch_fused",
        "dataloader_num_workers": job.workers,
        "dataloader_persistent_workers": job.workers > 0,
    }
    return _hugging_face(job, windows(job, file), seed, collator, options)


def plain_lightning(job: Job, file: Path, seed: int) -> Turn:
    """A LightningModule as in a tutorial: shuffled, padded to the longest of the batch, float32, AdamW."""
    import pytorch_lightning as pl
    from torch.utils.data import DataLoader
    from transformers import AutoTokenizer, DataCollatorWithPadding

    class PlainModule(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = _model(job)

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            loss: torch.Tensor = self.model(**batch).loss
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=3e-5, weight_decay=0.01)

    pl.seed_everything(seed, verbose=False)
    collator = DataCollatorWithPadding(AutoTokenizer.from_pretrained(job.tokenizer))
    rows: Any = windows(job, file)  # which may be a list
    loader: DataLoader[Any] = DataLoader(
        rows,
        batch_size=job.batch_size,
        shuffle=True,
        collate_fn=collator,
        num_workers=job.workers,
        persistent_workers=job.workers > 0,
    )
    clock = EpochClock()
    trainer = pl.Trainer(
        max_epochs=job.epochs,
        accelerator="cpu" if job.device == "cpu" else "gpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[clock],
    )
    trainer.fit(PlainModule(), loader)
    return _measured(job, clock.watch)


SYSTEMS: dict[str, Callable[[Job, Path, int], Turn]] = {
    "interventune": interventune,
    "Trainer, run_qa's defaults": trainer_defaults,
    "Trainer, tuned": trainer_tuned,
    "plain Lightning": plain_lightning,
}


def windows(job: Job, file: Path, *, pad: bool = False) -> list[dict[str, Any]]:
    """The windows of a file as Trainer takes them: the same rows and targets that our DataModule makes.

    Args:
        job: its tokenizer is used.
        file: of questions, in SQuAD's format.
        pad: fill every row up to 384 tokens.
    """
    from transformers import AutoTokenizer

    from data_modules.encoding.questions import encode_questions
    from data_modules.sources import read_questions

    tokenizer = AutoTokenizer.from_pretrained(job.tokenizer)
    rows = []
    for window in encode_questions(list(read_questions(str(file))), tokenizer, ENCODING).to_pylist():
        length = len(window["input_ids"])
        room = ENCODING.max_length - length if pad else 0
        row: dict[str, Any] = {
            "input_ids": [*window["input_ids"], *[tokenizer.pad_token_id] * room],
            "attention_mask": [1] * length + [0] * room,
            "start_positions": window["start"],
            "end_positions": window["end"],
        }
        if "token_type_ids" in tokenizer.model_input_names:
            row["token_type_ids"] = [*window["token_type_ids"], *[0] * room]
        rows.append(row)
    return rows


def _model(job: Job) -> Any:
    from transformers import AutoConfig, AutoModelForQuestionAnswering

    from models.backbones import ARCHITECTURES

    config = AutoConfig.for_model(ARCHITECTURES[job.architecture].model_type, **job.config)
    return AutoModelForQuestionAnswering.from_config(config)


def _hugging_face(
    job: Job, rows: list[dict[str, Any]], seed: int, collator: Any, options: dict[str, Any]
) -> Turn:
    from datasets import Dataset
    from transformers import (
        PrinterCallback,
        Trainer,
        TrainerCallback,
        TrainingArguments,
        set_seed,
        trainer_pt_utils,
    )

    watch = Stopwatch()

    class Clock(TrainerCallback):
        def on_epoch_begin(self, *_: Any, **__: Any) -> None:
            watch.start()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            watch.step()

        def on_epoch_end(self, *_: Any, **__: Any) -> None:
            watch.stop()

    set_seed(seed)
    # Lengths are grouped among 50 batches, as on a data set of SQuAD's size; on a draw Trainer would make its
    # pools smaller, and pad more.
    pools = partial(trainer_pt_utils.get_length_grouped_indices, mega_batch_mult=50)
    with (
        tempfile.TemporaryDirectory() as root,
        patch.object(trainer_pt_utils, "get_length_grouped_indices", pools),
    ):
        arguments = TrainingArguments(
            output_dir=root,
            num_train_epochs=job.epochs,
            seed=seed,
            use_cpu=job.device == "cpu",
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            eval_strategy="no",
            disable_tqdm=True,
            **options,
        )
        trainer = Trainer(
            model=_model(job),
            args=arguments,
            train_dataset=Dataset.from_list(rows),
            data_collator=collator,
            callbacks=[Clock()],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return _measured(job, watch)


def _measured(job: Job, watch: Stopwatch) -> Turn:
    """The last epoch, in epochs a second; memory is that of the process, on a GPU what was allocated."""
    if job.device == "cpu":
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        peak *= 1 if sys.platform == "darwin" else 1024
    else:
        peak = torch.cuda.max_memory_allocated()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    seconds = watch.seconds[-1]
    notes = {"steps": watch.steps[-1], "seconds": seconds, "peak memory MiB": peak / 2**20}
    return Turn(1 / seconds, notes)
