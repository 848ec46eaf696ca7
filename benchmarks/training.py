"""Fine-tuning: the throughput of this project and of Hugging Face's Trainer; what our callbacks
cost; a decoder with LoRA adapters and group losses.

For throughput, every turn draws new questions with SQuAD's mix of lengths, and every system trains
a fresh model on them for one epoch. The time includes sampling, padding, clipping and optimizer
steps.
"""

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
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

import interventune
from benchmarks.side_by_side import SHAPES, Shape, Size, Turn, in_turns, now, timed
from interventune.data_modules.batching.sets import encode_questions
from interventune.data_modules.encoding.tokenizers import build_tokenizer
from interventune.data_modules.encoding.windows import Encoding
from interventune.data_modules.schema.questions import QAExample, Span, write_records
from interventune.data_modules.sources import read_questions
from interventune.training.callbacks.eval_sets import EvalSets
from interventune.training.cli import main
from interventune.training.modules.fine_tuning import FineTuning
from interventune.training.precision import faster_precision

ENCODING = Encoding(max_length=384)
"""run_qa.py's defaults, used for all systems."""
STEPS = {"cpu": 20, "gpu": 200}
"""Of the fits that measure callbacks and decoders."""


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
        "--trainer.callbacks+=benchmarks.training.Clock",
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


class Job(NamedTuple):
    """The input of all systems: a model shape, a folder with a tokenizer, a file of questions, a
    seed.
    """

    shape: Shape
    tokenizer: str
    file: Path
    seed: int


def measure(size: Size, *, repeats: int) -> pd.DataFrame:
    """Return samples per second, tokens per second and, on a GPU, model FLOPs utilisation (the
    share of its peak) and the largest memory, in GiB.
    """
    precision = faster_precision()  # chosen once; child processes inherit it
    with tempfile.TemporaryDirectory() as folder:
        shape = SHAPES["training"][size]
        jobs = [make_job(shape, Path(folder), seed) for seed in range(repeats + 1)]
        return in_turns(f"training/{size}, {precision}", "samples/s", SYSTEMS, jobs)


def make_job(shape: Shape, folder: Path, seed: int) -> Job:
    """Write questions of made-up words with SQuAD's mix of lengths; the first context word is the
    answer.
    """
    rng = np.random.default_rng(seed)
    words = shape.config["vocab_size"] - 7  # at most 7 special tokens
    tokenizer = build_tokenizer(shape.architecture, (f"w{i}" for i in range(words)))
    tokenizer.save_pretrained(path := str(folder / "tokenizer"))
    special = tokenizer.num_special_tokens_to_add(pair=True)
    lengths = np.quantile(shape.lengths, rng.random(shape.questions)).astype(int)
    examples = []
    for i, length in enumerate(lengths):
        tokens = [f"w{word}" for word in rng.integers(0, words, length - special)]
        question = tokens[:12]
        context = tokens[12:]
        answer = Span(0, len(context[0]), context[0])
        examples.append(
            QAExample(f"q{i}", " ".join(context), " ".join(question), (answer,), dataset="squad")
        )
    write_records(examples, file := folder / f"questions_{seed}.jsonl")
    return Job(shape, path, file, seed)


def ours(job: Job) -> Turn:
    """Run `interventune train fit` with the settings of configs/base.yaml and, on a GPU, compiled
    layers.
    """
    with tempfile.TemporaryDirectory() as root:
        clock, _ = fit(
            root,
            job.shape,
            job.seed,
            "--model=interventune.training.modules.qa.QAModule",
            "--backbone.compile=true",
            f"--backbone.tokenizer={job.tokenizer}",
            f"--data.train_qa={job.file}",
            f"--data.qa_batch_size={job.shape.batch_size}",
        )
    return measured(job, clock.seconds)


def windows(job: Job) -> Dataset:
    """Return the windows of a file as Trainer needs them: the same rows and targets as in our
    DataModule.
    """
    tokenizer = transformers.AutoTokenizer.from_pretrained(job.tokenizer)
    encoded = encode_questions(list(read_questions(str(job.file))), tokenizer, ENCODING)
    targets = {"start": "start_positions", "end": "end_positions"}
    inputs = [name for name in tokenizer.model_input_names if name != "attention_mask"]
    rows = encoded.with_format(None).rename_columns(targets)
    return rows.select_columns([*inputs, *targets.values()])


def hugging_face(job: Job) -> Turn:
    """Train transformers' own model for one epoch with Trainer and an expert's settings: the faster
    precision, similar lengths together, padding to the longest of the batch and a multiple of 16,
    this project's batch size. The optimizer is the fused one, Trainer's default.
    """
    transformers.set_seed(job.seed)
    config = transformers.AutoConfig.for_model(job.shape.architecture, **job.shape.config)
    tokenizer = transformers.AutoTokenizer.from_pretrained(job.tokenizer)
    arguments = transformers.TrainingArguments(
        bf16=faster_precision() == "bf16-mixed",
        train_sampling_strategy="group_by_length",
        per_device_train_batch_size=job.shape.batch_size,
        **dict.fromkeys(("save_strategy", "logging_strategy", "eval_strategy"), "no"),
        output_dir=str(job.file.parent),
        use_cpu=not torch.cuda.is_available(),
        num_train_epochs=1,
        seed=job.seed,
        report_to=[],
        disable_tqdm=True,
    )
    trainer = transformers.Trainer(
        transformers.AutoModelForQuestionAnswering.from_config(config),
        arguments,
        transformers.DataCollatorWithPadding(tokenizer, pad_to_multiple_of=16),
        windows(job),
    )
    trainer.remove_callback(transformers.PrinterCallback)
    # Lengths are grouped among 50 batches, as for a data set of SQuAD's size; for a small draw,
    # Trainer would use smaller pools and pad more.
    pools = partial(transformers.trainer_pt_utils.get_length_grouped_indices, mega_batch_mult=50)
    with patch.object(transformers.trainer_pt_utils, "get_length_grouped_indices", pools):
        return measured(job, trainer.train().metrics["train_runtime"])


SYSTEMS = {"interventune": ours, "Trainer, tuned": hugging_face}


def measured(job: Job, seconds: float) -> Turn:
    """Return windows per second, with the notes of `measure`; the peak of bfloat16 products is
    measured.
    """
    lengths = [len(ids) for ids in windows(job)["input_ids"]]
    turn = timed(len(lengths), sum(lengths), seconds)
    if torch.cuda.is_available():
        one, two = torch.randn(2, 8192, 8192, dtype=torch.bfloat16, device="cuda")
        product = Timer("one @ two", globals=locals()).timeit(50).mean
        peak = 2 * 8192**3 / product
        turn.notes["MFU"] = training_flops(job.shape.config, lengths) / seconds / peak
    return turn


def training_flops(config: Mapping[str, Any], lengths: Sequence[int]) -> int:
    """Count the floating-point operations of a forward and backward pass over rows of these
    lengths, unpadded (Kaplan et al. 2020, section 2.1: 2 per weight and token forwards, twice that
    backwards).
    """
    hidden = config["hidden_size"]
    layers = config["num_hidden_layers"]
    weights = layers * (4 * hidden * hidden + 2 * hidden * config["intermediate_size"]) + 2 * hidden
    return int(6 * weights * sum(lengths) + 12 * layers * hidden * sum(n * n for n in lengths))
