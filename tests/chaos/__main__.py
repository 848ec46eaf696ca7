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
from collections.abc import Callable
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
        parts: list[Callable[[], bool]] = [lambda: disks(root / "disks")]
        if not args.quick:
            parts.append(lambda: training(args.kills, args.seed, root / "training"))
            parts.append(lambda: sweeps(args.sweep_kills, args.seed, root / "sweep"))
        held = [part() for part in parts]
    print("all of it holds" if all(held) else "NOT all of it holds")
    return 0 if all(held) else 1


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


def training(kills: int, seed: int, root: Path) -> bool:
    """kill -9 of training."""
    from tests.chaos.training_kills import kill_training

    result = kill_training(kills, seed, root)
    return shown("training", result.summary(), result.problems) and result.made.total() >= kills


def sweeps(kills: int, seed: int, root: Path) -> bool:
    """kill -9 of a sweep's workers, of its trials, and of the command, on every engine."""
    from tests.chaos.sweep_kills import ENGINES, engines, kill_sweep

    held = True
    for engine in ENGINES:
        if engine not in engines():
            print(f"sweep on {engine.name}: skipped, it is not installed", flush=True)
            continue
        result = kill_sweep(engine, kills, seed, root / engine.name)
        held = shown(f"sweep on {engine.name}", result.summary(), result.problems) and held
    return held


def shown(part: str, summary: str, problems: list[str]) -> bool:
    """Print how a part ended; whether it held."""
    print(f"{part}: {summary}: {'PROBLEMS' if problems else 'ended as if nothing had happened'}", flush=True)
    for problem in problems:
        print(f"  {problem}", flush=True)
    return not problems


if __name__ == "__main__":
    sys.exit(main())
