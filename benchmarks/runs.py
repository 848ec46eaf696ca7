"""Whole runs of `fit`, each in processes of its own: two processes against one, first and second start.

python -m benchmarks processes: two processes share the cores by halves (DDP over gloo); one gets half of the
cores, or all of them. Of two epochs the second is timed.

python -m benchmarks warm_start: seconds from the end of the imports to the end of the first step, for reading
the configuration, building the model, data, and one step. The first start finds an empty cache, the second
what the first has left there.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

from benchmarks.clock import timed_fit
from benchmarks.report import Row, rows_of
from benchmarks.trainers import Job, fit_flags
from benchmarks.training import QUICK, SHAPES
from benchmarks.turns import Turn, in_turns
from benchmarks.workload import make_workload

QUESTIONS, SQUAD = 256, 87_599
"""Of a repetition of `processes`; of a start: SQuAD's training part."""


def processes(*, repeats: int, quick: bool) -> list[Row]:
    """Windows per second, of all processes together, by the time of the slowest."""
    shape, half = (QUICK if quick else SHAPES)[0], max(1, torch.get_num_threads() // 2)
    layouts = {
        f"{n} x {threads} threads": (n, threads) for n, threads in ((2, half), (1, half), (1, 2 * half))
    }
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        draws = [64 if quick else QUESTIONS] * repeats
        work = make_workload(folder, draws=draws, vocabulary=shape.config["vocab_size"])
        job = Job(architecture="bert", config=shape.config, tokenizer=work.tokenizer, epochs=2)

        def run(name: str, turn: int) -> Turn:
            count, threads = layouts[name]
            flags = [*fit_flags(job, work.files[turn], turn, str(folder)), f"--trainer.devices={count}"]
            flags += ["--trainer.strategy=ddp"] if count > 1 else []
            records = timed_fit(flags, folder, threads=threads)
            windows = sum(record["windows"][-1] for record in records)
            seconds = max(record["seconds"][-1] for record in records)
            return Turn(windows / seconds, {"steps": records[0]["steps"][-1]})

        made = in_turns(layouts, repeats, run)
    return rows_of("processes", "samples/s", made, {"model": shape.name})


def warm_start(*, repeats: int, quick: bool) -> list[Row]:
    """Seconds to the first step, besides imports."""
    shape, count = (QUICK if quick else SHAPES)[0], 20 if quick else SQUAD
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        work = make_workload(folder, draws=[count], vocabulary=shape.config["vocab_size"])
        job = Job(architecture=shape.architecture, config=shape.config, tokenizer=work.tokenizer)

        def run(name: str, turn: int) -> Turn:
            flags = fit_flags(job, work.files[0], 0, str(folder / f"turn_{turn}"))
            (record,) = timed_fit([*flags, "--trainer.devices=1", "--trainer.max_steps=1"], folder)
            return Turn(record["first_step_seconds"], {"seconds of imports": record["import_seconds"]})

        made = in_turns(("first start", "second start"), repeats, run)
    unit, ours_first = "seconds to the first step, besides imports", dict(reversed(made.items()))
    notes = {"questions": count, "model": shape.name}
    return rows_of("warm_start", unit, ours_first, notes, higher_is_better=False)
