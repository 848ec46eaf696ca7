"""Throughput of fine-tuning, ours and others', on the same questions.   python -m benchmarks training

Every repetition draws new questions; every system trains on all of their windows, in a process of its own
that has warmed up on another draw. Timed is one epoch, with its sampling, padding, clipping and optimizer
steps; building the model is not.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.flops import measured_peak, training_flops
from benchmarks.result import Result
from benchmarks.trainers import SYSTEMS, Job, Measured
from benchmarks.turns import in_turns, players
from benchmarks.workload import VOCABULARY, Workload, make_workload

OURS = "interventune"
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


def measure(*, repeats: int, quick: bool, data: str = "") -> list[Result]:
    """Samples per second of every system, for every shape; real tokens per second, share of the peak of
    matrix products, steps and peak memory as notes.

    Args:
        repeats: how many.
        quick: a few questions and a minute model, to see that everything runs.
        data: a source of questions to draw from; empty makes them up with SQuAD's mix of lengths.
    """
    peaks = {dtype: measured_peak(dtype) for dtype in (torch.float32, torch.bfloat16)}
    results: list[Result] = []
    for shape in QUICK if quick else SHAPES:
        results += measure_shape(f"training/{shape.name}", shape, repeats, peaks, apart=not quick, data=data)
    return results


def measure_shape(
    benchmark: str,
    shape: Shape,
    repeats: int,
    peaks: Mapping[torch.dtype, float],
    *,
    apart: bool = True,
    data: str = "",
) -> list[Result]:
    """The systems on one shape; see `measure`."""
    with tempfile.TemporaryDirectory() as folder, players(list(SYSTEMS), apart=apart) as call:
        work = make_workload(
            Path(folder),
            draws=[shape.questions] * (repeats + 1),
            data=data,
            architecture=shape.architecture,
            vocabulary=shape.config["vocab_size"],
        )
        job = Job(architecture=shape.architecture, config=shape.config, tokenizer=work.tokenizer)
        for name, system in SYSTEMS.items():
            warm = call[name](system, job, work.files[0], 0)
            if name == OURS:  # the first; the others get the batch size that ours turns out to have
                job = replace(job, batch_size=max(1, round(len(work.lengths[0]) / warm.steps)))
        measured = in_turns(
            list(SYSTEMS),
            repeats,
            lambda name, turn: call[name](SYSTEMS[name], job, work.files[turn + 1], turn),
        )
    return [
        result_of(
            benchmark, name, shape, work, turns, peaks[torch.float32 if name in FLOAT32 else torch.bfloat16]
        )
        for name, turns in measured.items()
    ]


def result_of(
    benchmark: str, system: str, shape: Shape, work: Workload, turns: Sequence[Measured], peak: float
) -> Result:
    """The figures of one system; `work` begins with the warm-up's draw."""
    timed = list(zip(work.lengths[1:], turns, strict=True))
    flops = [training_flops(shape.config, lengths) / turn.seconds for lengths, turn in timed]
    return Result(
        benchmark=benchmark,
        system=system,
        unit="samples/s",
        values=tuple(len(lengths) / turn.seconds for lengths, turn in timed),
        command=f"python -m benchmarks {benchmark.split('/')[0]}",
        notes={
            "real tokens/s": round(median(sum(lengths) / turn.seconds for lengths, turn in timed)),
            "share of the measured matmul peak": round(median(flops) / peak, 3),
            "peak TFLOP/s": round(peak / 1e12, 3),
            "samples": round(median(len(lengths) for lengths, _ in timed)),
            "steps": round(median(turn.steps for turn in turns)),
            "seconds": round(median(turn.seconds for turn in turns), 2),
            "peak memory MiB": round(max(turn.peak_bytes for turn in turns) / 2**20),
        },
    )
