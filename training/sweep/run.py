"""Many runs of `fit`, shared by any number of workers."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from filelock import FileLock

from interventune.data_modules.sources import read_groups
from interventune.storage.command_line import Count, Parser, call, guarded
from interventune.storage.documents import (
    Values,
    check,
    load_json,
    load_yaml,
    parse_yaml,
    source_digest,
    write_text,
)
from interventune.training.callbacks.run_record import refuse_other_data
from interventune.training.configs import checked_configs, shipped

from .study import Grid, Sweep

FILE = "a sweep file, or the name of one in configs/sweeps (default: the first -c, an experiment)"
MORE = "another configuration for every run; it overrides those of the sweep"
SIZES = "data.limit_train_groups"


@dataclass(frozen=True, kw_only=True)
class Options:
    """Train once for each combination of the settings that a file lists.

    The same command resumes a sweep. Started several times (in other terminals, or as tasks of
    configs/launch/sweep.sbatch), it divides the runs among its processes. On a finished sweep it
    prints the results. Any other --KEY=VALUE applies to every run.

    Example: interventune sweep demo_grid --workers 2 --over trainer.max_epochs=[1,2]

    Args:
        workers: number of runs at the same time on this machine, which share its GPUs or cores
        over: other values for a key, or another key to vary, such as
            model.learning_rate=[1e-4,3e-4]
        again: repeat failed runs
        output: folder of the sweep, which all workers share (default: runs/sweeps/STUDY)
    """

    workers: Count = 1
    over: list[Annotated[str, "KEY=[VALUES]"]] | None = None
    again: bool = False
    output: Path | None = None


def sweep_of(argv: Sequence[str]) -> tuple[Sweep, Options]:
    """Return the sweep of a command line, and its options. ValueError for a mistake in either."""
    parser = Parser(Options, prog="interventune sweep")
    parser.add_argument("file", nargs="?", help=FILE)
    parser.add_argument("-c", "--config", action="append", default=[], metavar="FILE", help=MORE)
    arguments, flags = parser.parse_known_args(argv)
    if (arguments.file or "").startswith("-"):  # a flag with spaces in its value, for argparse
        flags.insert(0, arguments.file)
        arguments.file = None
    options: Options = call(Options, vars(arguments))
    if arguments.file:
        path = shipped(arguments.file, "sweeps")
        content = load_yaml(path, Sweep).model_dump()
    elif arguments.config:
        path = shipped(arguments.config[0], "experiments")
        content = of_experiment(path)
    else:
        raise ValueError("name a sweep file, or an experiment with -c and the values with --over")
    content["flags"] += flags
    content["configs"] += (str(shipped(x, "experiments", "backbones")) for x in arguments.config)
    for key, _, values in (text.partition("=") for text in options.over or ()):
        content["space"][key] = parse_yaml(values, Any, f"--over {key}")
        if not isinstance(content["space"][key], list | dict):
            raise ValueError(f"--over {key}: write a list of values, as in KEY=[VALUE,VALUE]")
    return check(content, Sweep, str(path)), options


def of_experiment(path: Path) -> Values:
    """Return a sweep without values over an experiment, compared by the metric that it monitors."""
    monitor = check(load_yaml(path, Values).get("checkpoint") or {}, Values, f"{path}: checkpoint")
    if "monitor" not in monitor:
        raise ValueError(f"{path}: has no checkpoint.monitor to compare runs by; name a sweep file")
    direction = "maximize" if monitor.get("mode") == "max" else "minimize"
    content = {"study": path.stem, "metric": monitor["monitor"], "direction": direction}
    return content | {"configs": [], "flags": [], "space": {}}


def main(argv: Sequence[str]) -> int:
    """Run the command: 0 if a point is complete, 1 if none is, 2 after a mistake, 130
    if stopped.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return guarded(lambda: run_sweep(*sweep_of(argv), argv))
    except KeyboardInterrupt:
        print("stopped; run the same command to resume", file=sys.stderr)
        return 130


def run_sweep(sweep: Sweep, options: Options, argv: Sequence[str]) -> int:
    """Run waiting points, and show the study; 1 if no point is complete. `argv`: for further
    workers.
    """
    folder = (options.output or Path(f"runs/sweeps/{sweep.study}")).absolute()
    grid = prepare(sweep, folder, again=options.again)
    (own, *others) = shares(options.workers)
    command = [sys.executable, "-P", "-m", "interventune.training", "sweep", *argv, "--workers=1"]
    workers = [
        subprocess.Popen(command, env=os.environ | share, stdout=subprocess.DEVNULL)
        for share in others
    ]
    os.environ.update(own)
    try:
        work(grid)
    except KeyboardInterrupt:
        for worker in workers:
            worker.terminate()
        raise
    finally:
        for worker in workers:
            worker.wait()
    rows = [{"point": point.name} | point.result() | point.parameters for point in grid.points()]
    table = pd.DataFrame(rows).rename(columns={"value": sweep.metric}).astype({sweep.metric: float})
    write_text(folder / "study.csv", table.to_csv(index=False))
    ranked = table.sort_values(sweep.metric, ascending=sweep.direction == "minimize", kind="stable")
    print(ranked.to_string(index=False, na_rep="", float_format="{:.6g}".format))
    counts = table["state"].value_counts()
    print(", ".join(f"{n} {state}" for state, n in counts.items()), folder, sep="; ")
    return int("complete" not in counts)


def shares(workers: int) -> list[dict[str, str]]:
    """Return environment variables for every worker: its part of the visible GPUs, or
    of the cores.
    """
    if workers == 1:
        return [{}]
    import torch

    count = torch.cuda.device_count()
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = named.split(",")[:count] if named else [*map(str, range(count))]
    if gpus:
        parts = [gpus[at::workers] or [gpus[at % count]] for at in range(workers)]
        return [{"CUDA_VISIBLE_DEVICES": ",".join(part)} for part in parts]
    threads = os.environ.get("OMP_NUM_THREADS") or max(1, torch.get_num_threads() // workers)
    return [{"OMP_NUM_THREADS": str(threads)}] * workers


def prepare(sweep: Sweep, folder: Path, *, again: bool) -> Grid:
    """Return the points of a sweep in `folder`. ValueError: bad point, wrong folder.

    Args:
        again: whether failed points shall be run again.
    """
    saved = folder / "sweep.json"
    content = sweep.model_dump(mode="json", exclude={"trials"})
    content["digests"] = [*map(source_digest, sweep.configs)]
    if not saved.exists():
        check_first_point(sweep)
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):
        if saved.exists() and load_json(saved) != content:
            raise ValueError(
                f"{saved}: was begun with other values, flags or configs; choose another --output"
            )
        write_text(saved, json.dumps(content, indent=1) + "\n")
    grid = Grid(sweep, folder)
    if sweep.sampler == "tpe":
        from .tpe import Search  # Optuna takes a second

        grid = Search(sweep, folder)
    for point in grid.points():
        if (point.run / "environment.json").exists():
            refuse_other_data(point.run)
        if again and point.result().get("state") == "fail":
            point.result_file.unlink(missing_ok=True)
    return grid


def check_first_point(sweep: Sweep) -> None:
    """ValueError if `fit` rejects it, or if the last points of a curve over sizes would be
    identical.
    """
    from interventune.training.parser import parsed  # takes seconds, needed only for a new study

    try:
        _, config = parsed("fit", checked_configs(sweep.arguments(sweep.first())))
    except ValueError as error:
        raise ValueError(f"the first point: {error}") from None
    sources = config.data.init_args.get("train_groups") or []
    count = sum(1 for source in sources for _ in read_groups(source))
    sizes = [] if "data.train_groups" in sweep.space else sweep.space.get(SIZES, [])
    if isinstance(sizes, list) and any(int(size or 0) > count for size in sizes):
        raise ValueError(
            f"{SIZES}: {', '.join(sources)} holds {count}; leave out sizes above (--over)"
        )


def work(grid: Grid) -> None:
    """Train points until each has a result."""
    while grid.draw() or not all(point.result() for point in grid.points()):
        for point in grid.points():
            point.take()
