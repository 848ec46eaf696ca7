"""Does everything survive what machines do? Kills, full disks, files that were cut off.

python -m tests.chaos [--kills 20] [--seed 0] [--quick]

Takes about fifteen minutes. Full and read-only disks need the right to mount one, sweeps on Ray need Ray;
without, they are skipped. Exit code 0 only if all of it holds.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before anything imports transformers
os.environ.setdefault("OMP_NUM_THREADS", "1")


def main() -> int:
    """Run all parts; 0 if they hold."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kills", type=int, default=20, help="kills of training (default 20)")
    parser.add_argument("--sweep-kills", type=int, default=6, help="kills in each sweep (default 6)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--quick", action="store_true", help="disks and files only")
    parser.add_argument("--keep", type=Path, help="a folder for all that the runs leave (default: none)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = (args.keep or Path(folder)).absolute()
        held = disks(root / "disks")
        if not args.quick:
            held = kills(args.kills, args.sweep_kills, args.seed, root) and held
    print("all of it holds" if held else "NOT all of it holds")
    return 0 if held else 1


def disks(root: Path) -> bool:
    """Full disks, read-only disks, files that were cut off."""
    from tests.chaos.disks import Skipped, scenarios

    logging.disable(logging.WARNING)
    held = True
    for number, (name, scenario) in enumerate(scenarios().items()):
        work = root / str(number)
        work.mkdir(parents=True)
        start, outcome, detail = time.monotonic(), "holds", ""
        try:
            scenario(work)
        except Skipped as reason:
            outcome, detail = "skipped", str(reason)
        except Exception as error:
            outcome, detail, held = "FAILS", f"{type(error).__name__}: {error}", False
        print(f"{outcome:8} {name} ({time.monotonic() - start:.0f} s) {detail}".rstrip(), flush=True)
    logging.disable(logging.NOTSET)
    return held


def kills(of_training: int, of_sweeps: int, seed: int, root: Path) -> bool:
    """kill -9 of training; of a sweep's workers, of its trials, and of the command, on every engine."""
    from tests.chaos.sweep_kills import ENGINES, kill_sweep
    from tests.chaos.training_kills import kill_training

    parts = {"training": lambda: kill_training(of_training, seed, root / "training")} if of_training else {}
    for engine in ENGINES if of_sweeps else ():
        name = f"sweep on {engine.name}"
        parts[name] = lambda engine=engine: kill_sweep(engine, of_sweeps, seed, root / engine.name)
    held = True
    for name, part in parts.items():
        if (result := part()) is None:
            print(f"{name}: skipped, it is not installed", flush=True)
            continue
        ended = "PROBLEMS" if result.problems else "ended as if nothing had happened"
        print(f"{name}: {result.summary()}: {ended}", *result.problems, sep="\n  ", flush=True)
        held = held and not result.problems
    return held


if __name__ == "__main__":
    sys.exit(main())
