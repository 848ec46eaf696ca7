"""python -m tests.training.sweep.fake_sweep FOLDER OPTIONS SWEEP: a sweep of fake_fit.py in its own process.

OPTIONS: JSON of `run_sweep`'s options. SWEEP: JSON of the sweep's fields that differ from a grid of eight
points.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import optuna

from training.sweep.command import Options, run_sweep
from training.sweep.file import Range, Sweep, check
from training.sweep.point import Study

FAKE = (sys.executable, "-S", str(Path(__file__).with_name("fake_fit.py")), "fit")


def fake_study(folder: Path, storage: str = "", **fields: Any) -> Study:
    """Eight points of a fifth of a second each."""
    pause = fields.pop("pause", 0.2)
    space = {"x": [0.0, 1.0, 2.0, 3.0], "y": [0.0, 0.5]}
    standard: dict[str, Any] = {"metric": "val/score", "direction": "maximize", "configs": []}
    fields["space"] = {
        key: Range(**values) if isinstance(values, dict) else values
        for key, values in fields.get("space", space).items()
    }
    sweep = Sweep(study="fake", **{**standard, "flags": [f"--pause={pause}"], **fields})
    check(sweep)
    return Study(sweep=sweep, folder=folder, storage=storage, grace=5.0, command=FAKE)


def run(folder: Path, **fields: Any) -> int:
    """One worker on this machine."""
    return run_sweep(fake_study(folder, **fields), Options())


if __name__ == "__main__":
    # As in a terminal: a shell that runs the tests in the background has its children ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    target, options, changes = sys.argv[1:]
    study = fake_study(Path(target), **json.loads(changes))
    sys.exit(run_sweep(study, Options(**json.loads(options))))
