"""python -m tests.training.sweep.fake_sweep FOLDER STORAGE WORKERS SWEEP: a sweep of fake_fit.py
in a process of its own.

SWEEP is the JSON of the fields that differ.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import optuna

from training.sweep.command import run_sweep
from training.sweep.file import Sweep, check

FAKE = (sys.executable, "-S", str(Path(__file__).with_name("fake_fit.py")), "fit")


def fake_sweep(**fields: Any) -> Sweep:
    """A grid of 16 trials of a fifth of a second each."""
    pause = fields.pop("pause", 0.2)
    space = {"x": [0.0, 1.0, 2.0, 3.0], "y": [0.0, 0.25, 0.5, 0.75]}
    standard: dict[str, Any] = {"metric": "val/score", "direction": "maximize", "configs": [], "space": space}
    sweep = Sweep(study="fake", **{**standard, "flags": [f"--pause={pause}"], **fields})
    check(sweep)
    return sweep


def run(folder: Path, storage: str = "", workers: int = 1, **fields: Any) -> int:
    """The sweep, with signs of life every second."""
    return run_sweep(
        fake_sweep(**fields),
        folder=folder,
        storage=storage,
        workers=workers,
        heartbeat=1,
        grace=5.0,
        command=FAKE,
    )


if __name__ == "__main__":
    # As in a terminal: a shell that runs the tests in the background has its children ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    target, address, count, changes = sys.argv[1:]
    sys.exit(run(Path(target), address, int(count), **json.loads(changes)))
