"""Training on two processes against one.   python -m benchmarks processes

Two processes share the cores by halves (DDP over gloo); one process gets half of the cores, or all of them.
Each run trains two epochs on the same questions; the second is timed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch

from benchmarks.result import Result
from benchmarks.timed_fit import timed_fit
from benchmarks.trainers import Job, fit_flags
from benchmarks.training import QUICK, SHAPES
from benchmarks.turns import in_turns
from benchmarks.workload import make_workload

QUESTIONS = 256


class Layout(NamedTuple):
    """How the machine is shared out."""

    processes: int
    threads: int


def layouts(cores: int) -> dict[str, Layout]:
    """Two processes, one on half of the cores, one on all of them."""
    half = max(1, cores // 2)
    return {
        f"2 processes, {half} thread{'s' * (half > 1)} each": Layout(2, half),
        f"1 process, {half} thread{'s' * (half > 1)}": Layout(1, half),
        f"1 process, {2 * half} threads": Layout(1, 2 * half),
    }


def measure(*, repeats: int, quick: bool, data: str = "") -> list[Result]:
    """Windows per second, of all processes together; see the module.

    Args:
        repeats: how many.
        quick: a few questions and a minute model.
        data: a source of questions to draw from; empty makes them up.
    """
    shape = QUICK[0] if quick else SHAPES[0]
    systems = layouts(torch.get_num_threads())
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        draws = [64 if quick else QUESTIONS] * repeats
        work = make_workload(folder, draws=draws, data=data, vocabulary=shape.config["vocab_size"])
        job = Job(architecture="bert", config=shape.config, tokenizer=work.tokenizer, epochs=2)

        def play(name: str, turn: int) -> Sequence[Mapping[str, Any]]:
            layout = systems[name]
            flags = fit_flags(job, work.files[turn], turn, str(folder))
            flags += [f"--trainer.devices={layout.processes}"]
            flags += ["--trainer.strategy=ddp"] if layout.processes > 1 else []
            return timed_fit(flags, folder, threads=layout.threads)

        made = in_turns(list(systems), repeats, play)
    return [
        Result(
            benchmark="processes",
            system=name,
            unit="samples/s",
            values=tuple(_throughput(records) for records in turns),
            command="python -m benchmarks processes",
            notes={
                "samples": round(median(sum(r["windows"][-1] for r in records) for records in turns)),
                "steps": round(median(records[0]["steps"][-1] for records in turns)),
                "model": shape.name,
            },
        )
        for name, turns in made.items()
    ]


def _throughput(records: Sequence[Mapping[str, Any]]) -> float:
    """Windows of all processes in their last epoch, by the time of the slowest."""
    windows = sum(record["windows"][-1] for record in records)
    return float(windows / max(record["seconds"][-1] for record in records))
