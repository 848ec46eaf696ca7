"""How long an experiment takes to its first step, the first time and again.   python -m benchmarks warm_start

Every start is a process of its own. Reported are the seconds from the end of its imports to the end of its
first step: reading the configuration, building the model, data, one step; the imports are a note. The first
start finds an empty cache, the second what the first has left there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.result import Result
from benchmarks.timed_fit import timed_fit
from benchmarks.trainers import Job, fit_flags
from benchmarks.training import QUICK, SHAPES, Shape
from benchmarks.workload import make_workload

QUESTIONS = 87_599
"""SQuAD's training part."""
SYSTEMS = ("second start", "first start")


def measure(*, repeats: int, quick: bool, data: str = "") -> list[Result]:
    """Seconds to the first step; see the module.

    Args:
        repeats: how many pairs of starts.
        quick: a few questions and a minute model.
        data: a source of questions, of which as many as SQuAD has are drawn; empty makes them up.
    """
    shape = QUICK[0] if quick else SHAPES[0]
    records: dict[str, list[Mapping[str, Any]]] = {name: [] for name in SYSTEMS}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        count = 20 if quick else QUESTIONS
        vocabulary = shape.config["vocab_size"]
        work = make_workload(folder, draws=[count], data=data, vocabulary=vocabulary)
        for turn in range(repeats):
            for name in reversed(SYSTEMS):
                flags = start_flags(shape, work.tokenizer, work.files[0], folder / f"turn_{turn}")
                records[name] += timed_fit(flags, folder)
    return [
        Result(
            benchmark="warm_start",
            system=name,
            unit="seconds to the first step, besides imports",
            values=tuple(record["first_step_seconds"] for record in made),
            higher_is_better=False,
            command="python -m benchmarks warm_start",
            notes={
                "seconds of imports": round(median(record["import_seconds"] for record in made), 2),
                "questions": count,
                "model": shape.name,
            },
        )
        for name, made in records.items()
    ]


def start_flags(shape: Shape, tokenizer: str, file: Path, root: Path) -> list[str]:
    """A run of one step, with its cache under `root`."""
    job = Job(architecture=shape.architecture, config=shape.config, tokenizer=tokenizer)
    return [*fit_flags(job, file, 0, str(root)), "--trainer.devices=1", "--trainer.max_steps=1"]
