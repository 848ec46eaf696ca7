"""Throughput of fine-tuning, ours and others', on the same questions.   python -m benchmarks training

Every repetition draws new questions; every system trains on all of their windows, in a process of its own
that has warmed up on another draw. Timed is one epoch, with its sampling, padding, clipping and optimizer
steps; building the model is not. The share of the peak is model FLOPs utilisation on real tokens.

python -m benchmarks gpu: RoBERTa shapes on one GPU against the tuned Trainer, with bfloat16, larger batches
and worker processes for all; of two epochs the second is timed, when everything is compiled. Without a GPU it
says so and measures nothing.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.clock import synchronise
from benchmarks.report import Row, rows_of
from benchmarks.trainers import SYSTEMS, Job, fit_flags, interventune, trainer_tuned
from benchmarks.turns import Turn, in_turns, own_processes
from benchmarks.workload import VOCABULARY, make_workload

OURS, TUNED = "interventune", "Trainer, tuned"
FLOAT32 = {"Trainer, run_qa's defaults", "plain Lightning"}
"""The systems whose peak is that of float32."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """An encoder with random weights.

    Args:
        name: in the tables.
        architecture: row of the table of backbones.
        config: transformers' configuration.
        questions: in the warm-up, and in each repetition.
    """

    name: str
    config: dict[str, Any]
    questions: int
    architecture: str = "bert"


def sizes(layers: int, hidden: int, heads: int, inner: int, vocabulary: int = VOCABULARY) -> dict[str, Any]:
    """A configuration of BERT or RoBERTa."""
    return {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "intermediate_size": inner,
        "vocab_size": vocabulary,
    }


SHAPES = (
    Shape(name="minilm", config=sizes(6, 384, 12, 1536), questions=80),
    Shape(name="tiny", config=sizes(2, 128, 2, 512), questions=480),
)
QUICK = (Shape(name="tiny", config=sizes(1, 32, 2, 64, 500), questions=10),)

_ROBERTA = {"max_position_embeddings": 514, "type_vocab_size": 1, "pad_token_id": 1}
WORKERS = 4
BASE = Shape(
    name="roberta-base",
    architecture="roberta",
    config=sizes(12, 768, 12, 3072, 50_265) | _ROBERTA,
    questions=8192,
)
LARGE = Shape(
    name="roberta-large",
    architecture="roberta",
    config=sizes(24, 1024, 16, 4096, 50_265) | _ROBERTA,
    questions=4096,
)
BATCH_SIZES = {BASE.name: 128, LARGE.name: 64}
VARIANTS: dict[str, tuple[str, ...]] = {
    OURS: (),
    f"{OURS}, sdpa": ("--backbone.attention=sdpa",),
    f"{OURS}, flash attention": ("--backbone.attention=flash_attention_2",),
    f"{OURS}, flex attention": ("--backbone.attention=flex_attention",),
    f"{OURS}, compiled": ("--run.compile=true",),
}
"""Flags of ours that may pay on a GPU; the first one is what is compared."""

Run = tuple[Callable[[Job, Path, int], Turn], Job]
"""A system and its job; the tokenizer is filled in."""


def measure(*, repeats: int, quick: bool) -> list[Row]:
    """Samples per second of every system, for every shape; real tokens per second, share of the peak of
    matrix products, steps and peak memory as notes."""
    kinds = (torch.float32, torch.bfloat16)
    peaks = {dtype: measured_peak(dtype, repeats=1 if quick else 10) for dtype in kinds}
    rows: list[Row] = []
    for shape in QUICK if quick else SHAPES:
        job = Job(architecture=shape.architecture, config=shape.config)
        runs = {name: (system, job) for name, system in SYSTEMS.items()}
        peak = {name: peaks[torch.float32 if name in FLOAT32 else torch.bfloat16] for name in runs}
        rows += measure_shape(f"training/{shape.name}", shape, runs, repeats, peak, apart=not quick)
    return rows


def measure_shape(
    benchmark: str,
    shape: Shape,
    runs: Mapping[str, Run],
    repeats: int,
    peak: Mapping[str, float],
    *,
    apart: bool = True,
    extra_note: tuple[str, Callable[[Job, Path], float]] | None = None,
) -> list[Row]:
    """All systems on one shape, in turns, each warmed up on a draw of its own.

    A variant of ours that does not run here is left out, and the screen says why. The others get the batch
    size that ours turns out to have.

    Args:
        benchmark: its name.
        shape: of the model.
        runs: the systems; ours is the first.
        repeats: how many.
        peak: FLOP/s that each system could reach.
        apart: each system in a process of its own.
        extra_note: a name, and what measures it for ours.
    """
    with tempfile.TemporaryDirectory() as folder, own_processes(runs, apart=apart) as call:
        work = make_workload(
            Path(folder),
            draws=[shape.questions] * (repeats + 1),
            architecture=shape.architecture,
            vocabulary=shape.config["vocab_size"],
        )
        jobs: dict[str, Job] = {}
        batch_size = 0
        for name, (system, job) in runs.items():
            job = replace(job, tokenizer=work.tokenizer, batch_size=batch_size or job.batch_size)
            try:
                warm = call[name](system, job, work.files[0], 0)
            except Exception as error:  # a kernel that is absent, a compiler that gives up: dozens of types
                if not name.startswith(f"{OURS}, "):
                    raise
                reason = (str(error).strip() or type(error).__name__).splitlines()[0]
                print(f"{benchmark}: {name} left out: {reason}", flush=True)
                continue
            jobs[name] = job
            if name == OURS:
                batch_size = max(1, round(len(work.lengths[0]) / warm.notes["steps"]))
        extra = {extra_note[0]: call[OURS](extra_note[1], jobs[OURS], work.files[0])} if extra_note else {}
        measured = in_turns(
            jobs,
            repeats,
            lambda name, turn: call[name](runs[name][0], jobs[name], work.files[turn + 1], turn),
        )
    turns: dict[str, list[Turn]] = {}
    for name, made in measured.items():
        turns[name] = []
        for lengths, turn in zip(work.lengths[1:], made, strict=True):
            share = training_flops(shape.config, lengths) * turn.figure / peak[name]
            notes = {"real tokens/s": sum(lengths) * turn.figure, "share of the measured matmul peak": share}
            notes |= {"peak TFLOP/s": peak[name] / 1e12, "samples": len(lengths)}
            notes |= turn.notes | (extra if name == OURS else {})
            turns[name].append(Turn(len(lengths) * turn.figure, notes))
    return rows_of(benchmark, "samples/s", turns)


def on_gpu(*, repeats: int, quick: bool) -> list[Row]:
    """Samples per second, and as notes the share of the measured peak of bfloat16 matrix products, peak
    memory and, for ours, how often a step waits for the GPU. Nothing where there is no GPU."""
    if not torch.cuda.is_available():
        print("gpu: skipped, torch finds no CUDA device here")
        return []
    # One GPU for every system: where there are several, Trainer would take them all.
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")
    peak = measured_peak(torch.bfloat16, "cuda", repeats=50)
    torch.cuda.empty_cache()
    rows: list[Row] = []
    for shape in (BASE, LARGE):
        shape = replace(shape, questions=512) if quick else shape
        found = runs(shape, BATCH_SIZES[shape.name])
        waits = ("synchronisations per step", synchronisations)
        peaks = dict.fromkeys(found, peak)
        rows += measure_shape(f"gpu/{shape.name}", shape, found, repeats, peaks, extra_note=waits)
    return rows


def runs(shape: Shape, batch_size: int, device: str = "cuda") -> dict[str, Run]:
    """All variants of ours that may run here, and the tuned Trainer."""
    job = Job(
        architecture=shape.architecture,
        config=shape.config,
        device=device,
        batch_size=batch_size,
        epochs=2,
        workers=WORKERS if device == "cuda" else 0,
    )
    ours: dict[str, Run] = {
        name: (interventune, replace(job, flags=(*flags, f"--data.qa_batch_size={batch_size}")))
        for name, flags in VARIANTS.items()
        if "flash" not in name or find_spec("flash_attn")
    }
    return ours | {TUNED: (trainer_tuned, job)}


def synchronisations(job: Job, file: Path) -> float:
    """How often a step of ours makes the host wait for the GPU, with logging out of the way."""
    from benchmarks.clock import SyncCounter
    from training.cli import main

    with tempfile.TemporaryDirectory() as root:
        flags = [*fit_flags(replace(job, epochs=1), file, 0, root), "--trainer.devices=1"]
        flags += ["--trainer.log_every_n_steps=1000000", "--trainer.callbacks+=benchmarks.clock.SyncCounter"]
        callbacks: list[Any] = main(flags).trainer.callbacks
    counter = next(callback for callback in callbacks if isinstance(callback, SyncCounter))
    return counter.found / max(1, counter.steps)


def matrix_weights(config: Mapping[str, Any]) -> int:
    """Weights of an encoder that every token is multiplied with: its linear layers and the span head.

    Embeddings are looked up, biases and normalisation weights are next to nothing.

    Args:
        config: `num_hidden_layers`, `hidden_size` and `intermediate_size` of BERT or RoBERTa.
    """
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    return int(config["num_hidden_layers"] * (4 * hidden * hidden + 2 * hidden * inner) + 2 * hidden)


def training_flops(config: Mapping[str, Any], lengths: Iterable[int]) -> int:
    """Floating-point operations of a forward and a backward pass over rows of these lengths.

    Two for every weight and token forwards, four backwards; attention adds the products of queries with keys
    and of weights with values: 4 x layers x hidden x length^2 forwards, twice that backwards. Real tokens
    only: padding is work that nobody asked for. (Kaplan et al. 2020, section 2.1, with backward passes.)

    Args:
        config: as in `matrix_weights`.
        lengths: tokens of every row.
    """
    rows = list(lengths)
    attention = 12 * config["num_hidden_layers"] * config["hidden_size"] * sum(n * n for n in rows)
    return 6 * matrix_weights(config) * sum(rows) + attention


def measured_peak(dtype: torch.dtype, device: str = "cpu", repeats: int = 10) -> float:
    """FLOP/s of a large matrix product as torch does it here, the best of some seconds of trying.

    The product is one of a linear layer (`x @ W^T`), 2048 x 2048 on CPUs and 8192 x 8192 on GPUs.
    """
    N = 2048 if device == "cpu" else 8192
    layer = nn.Linear(N, N, bias=False, dtype=dtype, device=device)
    x_NN = torch.randn(N, N, dtype=dtype, device=device)
    best = float("inf")
    with torch.no_grad():
        for _ in range(repeats):
            synchronise()
            began = time.perf_counter()
            layer(x_NN)
            synchronise()
            best = min(best, time.perf_counter() - began)
    return 2 * N**3 / best
