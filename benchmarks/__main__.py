"""Measure side by side.   python -m benchmarks [NAME ...] [--repeats 5] [--output benchmarks]

Without names, every benchmark runs. Each one writes its figures into results.json and results.md of the
output folder when it is done, and leaves those of the others as they are.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple


class Benchmark(NamedTuple):
    """One row of the table: a module with `measure(*, repeats, quick)`."""

    about: str
    takes: tuple[str, ...] = ()
    """Sources that `measure` also takes: `data` of questions, `groups`."""


BENCHMARKS = {
    "training": Benchmark("throughput of fine-tuning, against Trainer and plain Lightning", takes=("data",)),
    "bias_scoring": Benchmark("scoring groups for bias, against one at a time and padded", takes=("groups",)),
    "bias_metrics": Benchmark("bias metrics of a million rows, against plain Python"),
    "deletion": Benchmark("deletion intervention on many questions"),
    "warm_start": Benchmark("first and second start of an experiment", takes=("data",)),
    "processes": Benchmark("two processes against one", takes=("data",)),
    "gpu": Benchmark("fine-tuning RoBERTa on a GPU, where there is one", takes=("data",)),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run benchmarks; 1 when one of them failed, 2 for a mistake of the user's."""
    args = _parser().parse_args(argv)
    if args.repeats < 1:
        print("error: --repeats must be at least 1", file=sys.stderr)
        return 2
    if args.quick and args.output is None:
        print(
            "error: --quick: name a folder for its figures, which mean nothing (--output DIR)",
            file=sys.stderr,
        )
        return 2
    args.output = args.output or Path("benchmarks")
    names = args.names or list(BENCHMARKS)
    if len(names) == 1:
        return _one(names[0], args)
    # One process each, so that none inherits another's memory or settings, and none takes the others down.
    return max(subprocess.call([sys.executable, "-m", "benchmarks", name, *_flags(args)]) for name in names)


def _parser() -> argparse.ArgumentParser:
    rows = "\n".join(f"  {name:14}{row.about}" for name, row in BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=f"{__doc__}\n{rows}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # No `choices`: argparse would refuse an empty list of names.
    parser.add_argument("names", nargs="*", metavar="NAME", type=_name, help="benchmarks (default: all)")
    parser.add_argument(
        "--repeats", type=int, default=5, help="repetitions; medians are reported (default: 5)"
    )
    parser.add_argument("--quick", action="store_true", help="seconds in total, to see that all of it runs")
    parser.add_argument("--output", type=Path, help="folder of the results (default: benchmarks)")
    parser.add_argument(
        "--data", default="", help="questions to draw from (default: made up, lengths as SQuAD's)"
    )
    parser.add_argument("--groups", default="", help="groups to score (default: the embedded ones)")
    parser.add_argument("--date", default="", help="date of the results (default: today)")
    return parser


def _name(text: str) -> str:
    if text not in BENCHMARKS:
        raise argparse.ArgumentTypeError(f"no benchmark {text!r}; choose from {', '.join(BENCHMARKS)}")
    return text


def _flags(args: argparse.Namespace) -> list[str]:
    given = [f"--repeats={args.repeats}", f"--output={args.output}"]
    optional = [f"--{key}={getattr(args, key)}" for key in ("data", "groups", "date") if getattr(args, key)]
    return [*given, *optional, *(["--quick"] if args.quick else [])]


def _one(name: str, args: argparse.Namespace) -> int:
    """Measure and write one benchmark."""
    from benchmarks.machine import describe_machine
    from benchmarks.report import entries_of, record, table

    print(f"== {name}: {BENCHMARKS[name].about}", flush=True)
    module = importlib.import_module(f"benchmarks.{name}")
    options = {source: getattr(args, source) for source in BENCHMARKS[name].takes}
    try:
        results = module.measure(repeats=args.repeats, quick=args.quick, **options)
    except (ValueError, OSError) as error:
        print(f"error: {name}: {error}", file=sys.stderr)
        return 2
    if not results:  # the module has said why
        return 0
    command = f"python -m benchmarks {name}"
    results = [result if result.command else replace(result, command=command) for result in results]
    date = args.date or datetime.date.today().isoformat()
    about = {"date": date, "machine": describe_machine(), **({"quick": True} if args.quick else {})}
    entries = entries_of(name, results, about)
    record(args.output, name, entries)
    print(table(entries), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
