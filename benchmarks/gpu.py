"""RoBERTa shapes on one GPU, against the tuned Trainer in the same run.   python -m benchmarks gpu

Like benchmarks/training.py, with bfloat16, larger batches and worker processes for all; of two epochs the
second is timed, when everything is compiled. The share of the peak is model FLOPs utilisation on real tokens.
Without a GPU the benchmark says so and measures nothing.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from benchmarks.flops import measured_peak
from benchmarks.report import Result
from benchmarks.trainers import Job, fit_flags, interventune, trainer_tuned
from benchmarks.training import OURS, TUNED, Run, Shape, measure_shape, sizes

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


def measure(*, repeats: int, quick: bool) -> list[Result]:
    """Samples per second, and as notes the share of the measured peak of bfloat16 matrix products, peak
    memory and, for ours, how often a step waits for the GPU. Nothing where there is no GPU."""
    if not torch.cuda.is_available():
        print("gpu: skipped, torch finds no CUDA device here")
        return []
    # One GPU for every system: where there are several, Trainer would take them all.
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")
    peak = measured_peak(torch.bfloat16, "cuda", repeats=50)
    torch.cuda.empty_cache()
    results: list[Result] = []
    for shape in (BASE, LARGE):
        shape = replace(shape, questions=512) if quick else shape
        found = runs(shape, BATCH_SIZES[shape.name])
        waits = ("synchronisations per step", synchronisations)
        peaks = dict.fromkeys(found, peak)
        results += measure_shape(f"gpu/{shape.name}", shape, found, repeats, peaks, extra_note=waits)
    return results


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
