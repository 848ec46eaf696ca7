"""The points of a sweep. A point is one `fit` in STUDY/points/VALUES, and this folder is also its
place in the queue: a worker locks it, and a result in it says that it is done. So a point whose
worker dies is free at once, and resumes from its last checkpoint.
"""

import fcntl
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from interventune.storage.documents import write_text
from interventune.storage.json_files import load_json

from .file import Sweep, folder_name

FIT = (sys.executable, "-m", "interventune.training", "fit")
OTHER_JOB = re.compile(r"(SLURM|SRUN|TORCHELASTIC|MASTER|PMI|PMIX|OMPI)_.*|(.*_)?(RANK|WORLD_SIZE)")


class Point:
    """Values of the swept keys, and the folder named after them."""

    def __init__(self, sweep: Sweep, study: Path, parameters: dict[str, Any]) -> None:
        self.sweep, self.parameters = sweep, parameters
        self.name = folder_name(parameters)
        self.folder = study / "points" / self.name
        self.run = self.folder / "run"
        self.result_file = self.folder / "result.json"

    def result(self) -> dict[str, Any]:
        """Return state (`complete` or `fail`), value, seconds and reason; empty before."""
        return load_json(self.result_file) if self.result_file.exists() else {}

    def take(self) -> None:
        """Train the point and write its result, unless another worker does or has, or the `fit` of
        one that died goes on.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / ".lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(1)
                return
            if self.result():
                return
            began, state, value, reason = time.monotonic(), "complete", None, None
            try:
                if not (self.run / "metrics.json").exists():
                    self.fit(lock.fileno())
                value = self.value()
            except Exception as error:
                state, reason = "fail", str(error)
            seconds = time.monotonic() - began
            result = {"state": state, "value": value, "seconds": seconds, "reason": reason}
            write_text(self.result_file, json.dumps(result) + "\n")
            outcome = f"fail  {reason}" if value is None else f"{self.sweep.metric} {value:.4g}"
            print(self.name, outcome, sep="  ", file=sys.stderr)

    def fit(self, lock: int) -> None:
        """Start or resume `fit`, which holds the lock too, and wait for it. RuntimeError if it
        fails.
        """
        place = {"root": self.folder.parent, "name": self.name, "version": self.run.name}
        flags = [f"--run.{key}={value}" for key, value in place.items()]
        command = [*FIT, *self.sweep.arguments(self.parameters), *flags, "--ckpt_path=auto"]
        options: Any = {"start_new_session": True, "pass_fds": [lock], "env": own_environment()}
        log = self.folder / "log.txt"
        with open(log, "ab") as file:  # own session: Ctrl-C reaches only the worker
            options |= {"stdin": subprocess.DEVNULL, "stdout": file, "stderr": file}
            fit = subprocess.Popen(command, **options)
        try:
            code = fit.wait()
        except KeyboardInterrupt:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a scheduler may send several
            fit.terminate()
            fit.wait()
            raise
        finally:
            # Processes of a multi-GPU run that outlived the first.
            with suppress(ProcessLookupError):
                os.killpg(fit.pid, signal.SIGKILL)
        if code:
            lines = log.read_text(errors="replace").strip().splitlines()
            raise RuntimeError(f"exit code {code}: {(lines or ['no words'])[-1]}")

    def value(self) -> float:
        """Return the metric of a finished `fit`, and drop weights that are not kept. ValueError if
        there is none.
        """
        best = self.sweep.keep == "best"
        key = f"best/{self.sweep.metric}" if best else self.sweep.metric
        path = self.run / "metrics.json"
        metrics = load_json(path)
        value = metrics.get(key)
        if value is None or not math.isfinite(value):
            raise ValueError(f"{path}: {key} is {value}; there are {', '.join(metrics)}")
        if best:
            (self.run / "checkpoints" / "last.ckpt").unlink(missing_ok=True)
        return float(value)


class Grid:
    """The points of a sweep: every combination of the values."""

    def __init__(self, sweep: Sweep, study: Path) -> None:
        self.sweep, self.study = sweep, study

    def points(self) -> list[Point]:
        """Return the points that there are by now."""
        return [Point(self.sweep, self.study, values) for values in self.sweep.grid()]

    def draw(self) -> bool:
        """Add a point, unless there are enough; return whether one was added."""
        return False


def own_environment() -> dict[str, str]:
    """Return the environment without the variables that would make `fit` a process of the
    surrounding job.
    """
    return {name: value for name, value in os.environ.items() if not OTHER_JOB.fullmatch(name)}
