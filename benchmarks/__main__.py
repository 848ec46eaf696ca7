"""Measure side by side.   python -m benchmarks [NAME ...] [--repeats 5] [--output benchmarks]"""

from __future__ import annotations

import datetime
import importlib
import inspect
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from storage.command_line import Count, Parser, call, guarded, make_parser

BENCHMARKS = {
    "training": ("training.measure", "throughput of fine-tuning, against Trainer and Lightning"),
    "bias_scoring": ("bias_scoring.measure", "scoring groups, against one at a time and padded"),
    "bias_metrics": ("bias_metrics.measure", "bias of a million rows, against plain Python"),
    "warm_start": ("runs.warm_start", "first and second start of an experiment"),
    "processes": ("runs.processes", "two processes against one"),
    "likelihoods": ("language_models.likelihoods", "likelihoods, against lm-evaluation-harness if installed"),
    "group_losses": ("language_models.group_losses", "group losses of a decoder, against whole rows"),
    "gpu": ("training.on_gpu", "fine-tuning RoBERTa on a GPU, where there is one"),
}
"""For each a function of `repeats` and `quick`, perhaps of other options, and what it measures."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Measure side by side.

    Each benchmark writes its figures into results.csv and results.md of the output folder when it is done,
    and leaves those of the others as they are.

    Args:
        repeats: repetitions; medians are reported
        quick: seconds in total, to see that all of it runs; the figures mean nothing
        output: folder of the results (default: benchmarks)
        groups: what bias_scoring scores (default: the embedded groups)
        questions: what likelihoods asks, FILE or FILE+LABELS (default: embedded questions)
        model: folder of likelihoods' and group_losses' decoder (default: SmolLM2's shape, random weights)
        date: of the results (default: today)
    """

    repeats: Count = 5
    quick: bool = False
    output: Path | None = None
    groups: Annotated[str, "SOURCE"] = ""
    questions: Annotated[str, "SOURCE"] = ""
    model: Annotated[str, "FOLDER"] = ""
    date: str = ""


def parser() -> Parser:
    """The command's flags."""
    found = make_parser(Options, "python -m benchmarks")
    about = "; ".join(f"{name}: {what}" for name, (_, what) in BENCHMARKS.items())
    found.add_argument("names", nargs="*", metavar="NAME", help=f"benchmarks (default: all). {about}")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run benchmarks; above 0 when one of them failed."""
    arguments = parser().parse_args(argv)
    options: Options = call(Options, arguments)
    names = arguments.names or list(BENCHMARKS)
    for name in names:
        if name not in BENCHMARKS:
            parser().error(f"no benchmark {name!r}; choose from {', '.join(BENCHMARKS)}")
    if options.quick and options.output is None:
        parser().error("--quick: name a folder for its figures, which mean nothing (--output DIR)")
    if len(names) == 1:
        return guarded(lambda: _run(names[0], options))
    # One process each, so that none inherits another's memory or settings, and none takes the others down.
    flags = [argument for argument in (sys.argv[1:] if argv is None else argv) if argument not in names]
    return max(subprocess.call([sys.executable, "-m", "benchmarks", name, *flags]) for name in names)


def _run(name: str, options: Options) -> None:
    from benchmarks.report import markdown, record, table_of

    place, about = BENCHMARKS[name]
    print(f"== {name}: {about}", flush=True)
    module, _, function = place.partition(".")
    measure = getattr(importlib.import_module(f"benchmarks.{module}"), function)
    taken = inspect.signature(measure).parameters
    given = {"groups": options.groups, "questions": options.questions, "model": options.model}
    more = {key: value for key, value in given.items() if value and key in taken}
    results = measure(repeats=options.repeats, quick=options.quick, **more)
    if results:  # otherwise it has said why there are none
        command = f"python -m benchmarks {name}{' --quick' if options.quick else ''}"
        table = table_of(results, command, options.date or datetime.date.today().isoformat())
        record(options.output or Path("benchmarks"), table)
        print(markdown(table), flush=True)


if __name__ == "__main__":
    sys.exit(main())
