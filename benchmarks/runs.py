"""Whole runs of `fit`, each in processes of its own: two processes against one, first and second start.

python -m benchmarks processes: two processes share the cores by halves (DDP over gloo); one gets half of the
cores, or all of them. Of two epochs the second is timed.

python -m benchmarks warm_start: seconds from the end of the imports to the end of the first step, for reading
the configuration, building the model, data, and one step. The first start finds an empty cache, the second
what the first has left there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.clock import timed_fit
from benchmarks.report import Result
from benchmarks.trainers import Job, fit_flags
from benchmarks.training import QUICK, SHAPES
from benchmarks.turns import in_turns
from benchmarks.workload import make_workload

QUESTIONS, SQUAD = 256, 87_599
"""Of a repetition of `processes`; of a start: SQuAD's training part."""
Records = Sequence[Mapping[str, Any]]
"""One for each process of a run."""


def processes(*, repeats: int, quick: bool) -> list[Result]:
    """Windows per second, of all processes together."""
    shape, half = (QUICK if quick else SHAPES)[0], max(1, torch.get_num_threads() // 2)
    layouts = {
        f"{n} x {threads} threads": (n, threads) for n, threads in ((2, half), (1, half), (1, 2 * half))
    }
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        draws = [64 if quick else QUESTIONS] * repeats
        work = make_workload(folder, draws=draws, vocabulary=shape.config["vocab_size"])
        job = Job(architecture="bert", config=shape.config, tokenizer=work.tokenizer, epochs=2)

        def run(name: str, turn: int) -> Records:
            count, threads = layouts[name]
            flags = [*fit_flags(job, work.files[turn], turn, str(folder)), f"--trainer.devices={count}"]
            flags += ["--trainer.strategy=ddp"] if count > 1 else []
            return timed_fit(flags, folder, threads=threads)

        made = in_turns(layouts, repeats, run)
    return [
        Result(
            benchmark="processes",
            system=name,
            unit="samples/s",
            values=tuple(map(_throughput, turns)),
            notes={"steps": round(median(records[0]["steps"][-1] for records in turns)), "model": shape.name},
        )
        for name, turns in made.items()
    ]


def _throughput(records: Records) -> float:
    """Windows of all processes in their last epoch, by the time of the slowest."""
    windows = sum(record["windows"][-1] for record in records)
    return float(windows / max(record["seconds"][-1] for record in records))


def warm_start(*, repeats: int, quick: bool) -> list[Result]:
    """Seconds to the first step, besides imports."""
    shape, count = (QUICK if quick else SHAPES)[0], 20 if quick else SQUAD
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        work = make_workload(folder, draws=[count], vocabulary=shape.config["vocab_size"])
        job = Job(architecture=shape.architecture, config=shape.config, tokenizer=work.tokenizer)

        def run(name: str, turn: int) -> Mapping[str, Any]:
            flags = fit_flags(job, work.files[0], 0, str(folder / f"turn_{turn}"))
            return timed_fit([*flags, "--trainer.devices=1", "--trainer.max_steps=1"], folder)[0]

        made = in_turns(("first start", "second start"), repeats, run)
    return [
        Result(
            benchmark="warm_start",
            system=name,
            unit="seconds to the first step, besides imports",
            values=tuple(record["first_step_seconds"] for record in made[name]),
            higher_is_better=False,
            notes={
                "seconds of imports": round(median(record["import_seconds"] for record in made[name]), 2),
                "questions": count,
                "model": shape.name,
            },
        )
        for name in ("second start", "first start")  # ours is the second
    ]
