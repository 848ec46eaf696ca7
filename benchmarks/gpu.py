"""RoBERTa shapes on one GPU, against the tuned Trainer in the same run.   python -m benchmarks gpu

Like benchmarks/training.py, with bfloat16, larger batches and worker processes for all; of two epochs the
second is timed, when everything is compiled. The share of the peak is model FLOPs utilisation on real tokens.
Without a GPU the benchmark says so and measures nothing.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from benchmarks.flops import measured_peak
from benchmarks.result import Result
from benchmarks.trainers import Job, Measured, fit_flags, interventune, trainer_tuned
from benchmarks.training import OURS, Shape, result_of, sizes
from benchmarks.turns import Call, in_turns, players
from benchmarks.workload import Workload, make_workload

_ROBERTA = {"max_position_embeddings": 514, "type_vocab_size": 1, "pad_token_id": 1}
WORKERS = 4


@dataclass(frozen=True, kw_only=True)
class GPUShape(Shape):
    """A shape and the windows of its batches."""

    batch_size: int


SHAPES = (
    GPUShape(
        name="roberta-base",
        architecture="roberta",
        config=sizes(12, 768, 12, 3072, 50_265) | _ROBERTA,
        questions=8192,
        batch_size=128,
    ),
    GPUShape(
        name="roberta-large",
        architecture="roberta",
        config=sizes(24, 1024, 16, 4096, 50_265) | _ROBERTA,
        questions=4096,
        batch_size=64,
    ),
)
VARIANTS: dict[str, tuple[str, ...]] = {
    OURS: (),
    f"{OURS}, sdpa": ("--backbone.attention=sdpa",),
    f"{OURS}, flash attention": ("--backbone.attention=flash_attention_2",),
    f"{OURS}, flex attention": ("--backbone.attention=flex_attention",),
    f"{OURS}, compiled": ("--run.compile=true",),
}
"""Flags of ours that may pay on a GPU; the first one is what is compared."""
TUNED = "Trainer, tuned"


def measure(*, repeats: int, quick: bool, data: str = "") -> list[Result]:
    """Samples per second, and as notes the share of the measured peak of bfloat16 matrix products, peak
    memory and, for ours, how often a step waits for the GPU. Nothing where there is no GPU.

    Args:
        repeats: how many.
        quick: fewer questions.
        data: a source of questions to draw from; empty makes them up with SQuAD's mix of lengths.
    """
    if not torch.cuda.is_available():
        print("gpu: skipped, torch finds no CUDA device here")
        return []
    # One GPU for every system: where there are several, Trainer would take them all.
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")
    peak = measured_peak(torch.bfloat16, "cuda", repeats=50)
    torch.cuda.empty_cache()
    results: list[Result] = []
    for shape in SHAPES:
        results += measure_shape(replace(shape, questions=512) if quick else shape, repeats, peak, data)
    return results


def measure_shape(
    shape: GPUShape, repeats: int, peak: float, data: str = "", *, device: str = "cuda", apart: bool = True
) -> list[Result]:
    """All variants of ours that run here, and the tuned Trainer."""
    runs: dict[str, tuple[Callable[..., Measured], tuple[str, ...]]] = {
        name: (interventune, (*flags, f"--data.qa_batch_size={shape.batch_size}"))
        for name, flags in VARIANTS.items()
        if "flash" not in name or find_spec("flash_attn")
    }
    runs[TUNED] = (trainer_tuned, ())
    with tempfile.TemporaryDirectory() as folder, players(list(runs), apart=apart) as call:
        work = make_workload(
            Path(folder),
            draws=[shape.questions] * (repeats + 1),
            data=data,
            architecture=shape.architecture,
            vocabulary=shape.config["vocab_size"],
        )
        jobs = {name: _job(shape, work.tokenizer, flags, device) for name, (_, flags) in runs.items()}
        _warm_up(runs, jobs, work, call)
        waits = call[OURS](synchronisations, jobs[OURS], work.files[0])
        measured = in_turns(
            list(runs),
            repeats,
            lambda name, turn: call[name](runs[name][0], jobs[name], work.files[turn + 1], turn),
        )
    benchmark = f"gpu/{shape.name}"
    results = [result_of(benchmark, name, shape, work, turns, peak) for name, turns in measured.items()]
    noted = replace(results[0], notes=results[0].notes | {"synchronisations per step": waits})
    return [noted, *results[1:]]


def _job(shape: GPUShape, tokenizer: str, flags: tuple[str, ...], device: str) -> Job:
    return Job(
        architecture=shape.architecture,
        config=shape.config,
        tokenizer=tokenizer,
        device=device,
        batch_size=shape.batch_size,
        epochs=2,
        workers=WORKERS if device == "cuda" else 0,
        flags=flags,
    )


def _warm_up(
    runs: dict[str, tuple[Callable[..., Measured], tuple[str, ...]]],
    jobs: dict[str, Job],
    work: Workload,
    call: Mapping[str, Call],
) -> None:
    """Run everything once. A variant that does not run here is left out, and the screen says why; ours
    without flags must run, and so must the Trainer, which gets the batch size that ours turns out to have."""
    for name in list(runs):
        try:
            warm = call[name](runs[name][0], jobs[name], work.files[0], 0)
        except Exception as error:  # a kernel that is absent, a compiler that gives up: dozens of types
            if name in (OURS, TUNED):
                raise
            print(f"gpu: {name} left out: {(str(error).strip() or type(error).__name__).splitlines()[0]}")
            del runs[name], jobs[name]
            continue
        if name == OURS:
            batch_size = max(1, round(len(work.lengths[0]) / warm.steps))
            jobs[TUNED] = replace(jobs[TUNED], batch_size=batch_size)


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
