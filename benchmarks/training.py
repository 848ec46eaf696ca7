"""Throughput of fine-tuning: this project, two setups of Hugging Face's Trainer, and plain
Lightning.

Every turn draws new questions with SQuAD's mix of lengths, and every system trains a fresh model on
them for one epoch. The time includes sampling, padding, clipping and optimizer steps.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytorch_lightning as pl
import torch
import transformers
from datasets import Dataset
from torch.utils.benchmark import Timer
from torch.utils.data import DataLoader
from transformers import (
    AutoConfig,
    AutoModelForQuestionAnswering,
    AutoTokenizer,
    DataCollatorWithPadding,
)

from benchmarks.side_by_side import Turn, in_turns, table
from interventune.data_modules.batching.sets import encode_questions
from interventune.data_modules.encoding.windows import Encoding
from interventune.data_modules.schema.questions import QAExample
from interventune.data_modules.schema.spans import Span, write_records
from interventune.data_modules.sources import read_questions
from interventune.data_modules.stories.word_tokenizer import build_tokenizer
from interventune.training.cli import main
from interventune.training.precision import faster_precision

ENCODING = Encoding(max_length=384)
"""run_qa.py's defaults, used for all systems."""
TOKENS = (
    32,
    67,
    81,
    93,
    102,
    111,
    119,
    127,
    134,
    142,
    150,
    158,
    168,
    177,
    187,
    198,
    212,
    233,
    258,
    299,
    384,
)
"""Of a window, at every twentieth of the data, from the shortest to the longest: 11,877 questions
of SQuAD 1.1 (44 training articles) in BERT's uncased vocabulary, mean 161.
"""


class Shape(NamedTuple):
    """An encoder with random weights, the number of questions per turn, and the batch size."""

    architecture: str
    config: dict[str, Any]
    questions: int
    batch_size: int = 16


def sizes(
    layers: int, hidden: int, heads: int, vocabulary: int = 30_522, **more: int
) -> dict[str, Any]:
    """Return the sizes of a BERT or RoBERTa configuration."""
    names = (
        "num_hidden_layers",
        "hidden_size",
        "num_attention_heads",
        "intermediate_size",
        "vocab_size",
    )
    return dict(zip(names, (layers, hidden, heads, 4 * hidden, vocabulary), strict=True)) | more


ROBERTA = {"max_position_embeddings": 514, "type_vocab_size": 1, "pad_token_id": 1}
SHAPES = {
    "minilm": Shape("bert", sizes(6, 384, 12), 80),
    "tiny": Shape("bert", sizes(2, 128, 2), 480),
    "tiny-roberta": Shape("roberta", sizes(2, 128, 2, 1000, **ROBERTA), 480),
    "roberta-large": Shape("roberta", sizes(24, 1024, 16, 50_265, **ROBERTA), 12_288, 64),
}


class Job(NamedTuple):
    """The input of all systems: a model shape, a folder with a tokenizer, a file of questions, a
    seed.
    """

    shape: Shape
    tokenizer: str
    file: Path
    seed: int


def measure(name: str, *, repeats: int) -> pd.DataFrame:
    """Return samples per second, tokens per second and, on a GPU, model FLOPs utilisation (the
    share of its peak) and the largest memory, in GiB.
    """
    precision = faster_precision()  # chosen once; child processes inherit it
    systems = dict(SYSTEMS)
    if torch.cuda.is_available():
        del systems["Trainer, run_qa's defaults"]  # float32, for minutes
    with tempfile.TemporaryDirectory() as folder:
        jobs = [(make_job(SHAPES[name], Path(folder), seed),) for seed in range(repeats + 1)]
        return table(f"training/{name}, {precision}", "samples/s", in_turns(systems, jobs))


def make_job(shape: Shape, folder: Path, seed: int) -> Job:
    """Write questions of made-up words with SQuAD's mix of lengths; the first context word is the
    answer.
    """
    words, rng = (
        shape.config["vocab_size"] - 7,
        np.random.default_rng(seed),
    )  # at most 7 special tokens
    path = str(folder / "tokenizer")
    build_tokenizer(shape.architecture, (f"w{i}" for i in range(words))).save_pretrained(path)
    special = AutoTokenizer.from_pretrained(path).num_special_tokens_to_add(pair=True)
    twentieths = rng.uniform(0, len(TOKENS) - 1, shape.questions)
    examples = []
    for i, length in enumerate(np.interp(twentieths, range(len(TOKENS)), TOKENS).astype(int)):
        drawn = [f"w{word}" for word in rng.integers(0, words, length - special)]
        question, context = drawn[:12], drawn[12:]  # 12 tokens: the median question
        answer = Span(0, len(context[0]), context[0])
        examples.append(
            QAExample(f"q{i}", " ".join(context), " ".join(question), (answer,), dataset="squad")
        )
    write_records(examples, file := folder / f"questions_{seed}.jsonl")
    return Job(shape, path, file, seed)


class EpochClock(pl.Callback):
    """Measure from before an epoch's first batch is fetched until its last step, without
    checkpoints.
    """

    def on_train_epoch_start(self, *_: Any) -> None:
        self.began = now()

    def on_train_epoch_end(self, *_: Any) -> None:
        self.seconds = now() - self.began


def now() -> float:
    """Return the time in seconds, after pending GPU work has finished."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def interventune(job: Job) -> Turn:
    """Run `interventune train fit` with the settings of configs/base.yaml and, on a GPU, compiled
    layers.
    """
    with tempfile.TemporaryDirectory() as root:
        config = ", ".join(f"{key}: {value}" for key, value in job.shape.config.items())
        flags = [
            *("--model=interventune.training.modules.qa.QAModule", "--backbone.checkpoint=random"),
            *(
                f"--backbone.architecture={job.shape.architecture}",
                f"--backbone.config={{{config}}}",
            ),
            *(f"--backbone.tokenizer={job.tokenizer}", f"--data.train_qa={job.file}"),
            *(f"--data.qa_batch_size={job.shape.batch_size}", f"--seed_everything={job.seed}"),
            *(f"--run.root={root}/runs", f"--data.cache={root}/cache", "--trainer.devices=1"),
            *("--backbone.compile=true", "--trainer.callbacks+=benchmarks.training.EpochClock"),
        ]
        cli = main(["fit", "--trainer.enable_progress_bar=false", *flags])
    return measured(
        job, next(c for c in cli.trainer.callbacks if isinstance(c, EpochClock)).seconds
    )


def trainer_defaults(job: Job) -> Turn:
    """Run Trainer with run_qa.py's settings: rows padded to 384, float32, batch size 8,
    shuffled.
    """
    return hugging_face(job, {"padding": "max_length", "max_length": ENCODING.max_length})


def trainer_tuned(job: Job) -> Turn:
    """Run Trainer with an expert's settings: the faster precision, similar lengths together,
    padding to the longest of the batch and a multiple of 16, this project's batch size, the fused
    optimizer.
    """
    return hugging_face(
        job,
        {"pad_to_multiple_of": 16},
        bf16=faster_precision() == "bf16-mixed",
        train_sampling_strategy="group_by_length",
        per_device_train_batch_size=job.shape.batch_size,
        optim="adamw_torch_fused",
    )


def plain_lightning(job: Job) -> Turn:
    """Run a tutorial-style LightningModule: shuffled, padded to the longest of the batch, AdamW, in
    float32, on a GPU in bfloat16.
    """

    class PlainModule(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model_of(job)

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            return torch.as_tensor(self.model(**batch).loss)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=3e-5, weight_decay=0.01)

    pl.seed_everything(job.seed, verbose=False)
    collator = DataCollatorWithPadding(AutoTokenizer.from_pretrained(job.tokenizer))
    loader = DataLoader(
        windows(job), batch_size=job.shape.batch_size, shuffle=True, collate_fn=collator
    )
    clock, off = (
        EpochClock(),
        {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False},
    )
    precision: Any = faster_precision() if torch.cuda.is_available() else "32-true"
    pl.Trainer(max_epochs=1, devices=1, callbacks=[clock], precision=precision, **off).fit(
        PlainModule(), loader
    )
    return measured(job, clock.seconds)


SYSTEMS: dict[str, Callable[[Job], Turn]] = {
    "interventune": interventune,
    "Trainer, run_qa's defaults": trainer_defaults,
    "Trainer, tuned": trainer_tuned,
    "plain Lightning": plain_lightning,
}


def windows(job: Job) -> Dataset:
    """Return the windows of a file as Trainer needs them: the same rows and targets as in our
    DataModule.
    """
    tokenizer = AutoTokenizer.from_pretrained(job.tokenizer)
    made = encode_questions(list(read_questions(str(job.file))), tokenizer, ENCODING)
    targets = {"start": "start_positions", "end": "end_positions"}
    inputs = [name for name in tokenizer.model_input_names if name != "attention_mask"]
    return (
        made.with_format(None).rename_columns(targets).select_columns([*inputs, *targets.values()])
    )


def model_of(job: Job) -> Any:
    """Return transformers' own model of the shape."""
    config = AutoConfig.for_model(job.shape.architecture, **job.shape.config)
    return AutoModelForQuestionAnswering.from_config(config)


def hugging_face(job: Job, padding: Mapping[str, Any], **options: Any) -> Turn:
    """Train for one epoch with Trainer."""
    clock = EpochClock()

    class Clock(transformers.TrainerCallback):
        def on_epoch_begin(self, *_: Any, **__: Any) -> None:
            clock.on_train_epoch_start()

        def on_epoch_end(self, *_: Any, **__: Any) -> None:
            clock.on_train_epoch_end()

    transformers.set_seed(job.seed)
    options |= dict.fromkeys(("save_strategy", "logging_strategy", "eval_strategy"), "no")
    options |= {"num_train_epochs": 1, "seed": job.seed, "report_to": [], "disable_tqdm": True}
    # Lengths are grouped among 50 batches, as for a data set of SQuAD's size; for a small draw,
    # Trainer would use smaller pools and pad more.
    pools = partial(transformers.trainer_pt_utils.get_length_grouped_indices, mega_batch_mult=50)
    collator = DataCollatorWithPadding(AutoTokenizer.from_pretrained(job.tokenizer), **padding)
    options |= {"output_dir": str(job.file.parent), "use_cpu": not torch.cuda.is_available()}
    arguments = transformers.TrainingArguments(**options)
    trainer = transformers.Trainer(
        model_of(job), arguments, collator, windows(job), callbacks=[Clock()]
    )
    trainer.remove_callback(transformers.PrinterCallback)
    with patch.object(transformers.trainer_pt_utils, "get_length_grouped_indices", pools):
        trainer.train()
    return measured(job, clock.seconds)


def measured(job: Job, seconds: float) -> Turn:
    """Return windows per second, with the notes of `measure`; the peak of bfloat16 products is
    measured.
    """
    lengths = list(map(len, windows(job)["input_ids"]))
    notes = {"tokens/s": sum(lengths) / seconds}
    if torch.cuda.is_available():
        one, two = torch.randn(2, 8192, 8192, dtype=torch.bfloat16, device="cuda")
        product = Timer("one @ two", globals=locals()).timeit(50).mean
        peak = 2 * 8192**3 / product
        notes["MFU"] = training_flops(job.shape.config, lengths) / seconds / peak
        notes["GiB"] = torch.cuda.max_memory_allocated() / 2**30
        torch.cuda.reset_peak_memory_stats()
    return Turn(len(lengths) / seconds, notes)


def training_flops(config: Mapping[str, Any], lengths: Sequence[int]) -> int:
    """Count the floating-point operations of a forward and backward pass over rows of these
    lengths, unpadded (Kaplan et al. 2020, section 2.1: 2 per weight and token forwards, twice that
    backwards).
    """
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    weights = layers * (4 * hidden * hidden + 2 * hidden * config["intermediate_size"]) + 2 * hidden
    return int(6 * weights * sum(lengths) + 12 * layers * hidden * sum(n * n for n in lengths))
