"""Throughput of fine-tuning, ours and others', on the same questions.   python -m benchmarks training

Every repetition draws new questions; every system trains on all of their windows, in a process of its own
that has warmed up on another draw. Timed is one epoch, with its sampling, padding, clipping and optimizer
steps; building the model is not.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.flops import measured_peak, training_flops
from benchmarks.report import Result
from benchmarks.trainers import SYSTEMS, Job
from benchmarks.turns import Turn, in_turns, own_processes, results_of
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


Run = tuple[Callable[[Job, Path, int], Turn], Job]
"""A system and its job; the tokenizer is filled in."""


def measure(*, repeats: int, quick: bool) -> list[Result]:
    """Samples per second of every system, for every shape; real tokens per second, share of the peak of
    matrix products, steps and peak memory as notes."""
    peaks = {dtype: measured_peak(dtype) for dtype in (torch.float32, torch.bfloat16)}
    results: list[Result] = []
    for shape in QUICK if quick else SHAPES:
        job = Job(architecture=shape.architecture, config=shape.config)
        runs = {name: (system, job) for name, system in SYSTEMS.items()}
        peak = {name: peaks[torch.float32 if name in FLOAT32 else torch.bfloat16] for name in runs}
        results += measure_shape(f"training/{shape.name}", shape, runs, repeats, peak, apart=not quick)
    return results


def measure_shape(
    benchmark: str,
    shape: Shape,
    runs: Mapping[str, Run],
    repeats: int,
    peak: Mapping[str, float],
    *,
    apart: bool = True,
    extra_note: tuple[str, Callable[[Job, Path], float]] | None = None,
) -> list[Result]:
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
    return results_of(benchmark, "samples/s", turns, {})
