"""A study: the file of a sweep, as in configs/sweeps/, and its points.

The file is a `fit` to repeat, with values of its keys. A point is one of these, in
STUDY/points/VALUES, and this folder is also its place in the queue: a worker locks it, and a result
in it says that it is done. So a point whose worker dies is free at once, and resumes from its last
checkpoint.
"""

import fcntl
import itertools
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, Field, model_validator

from interventune.storage.documents import Values, load_json, text_digest, write_text

RESERVED = ("run.root", "run.name", "run.version", "ckpt_path")
LONGEST_NAME = 150
FIT = (sys.executable, "-P", "-m", "interventune.training", "fit")
OTHER_JOB = re.compile(r"(SLURM|SRUN|TORCHELASTIC|MASTER|PMI|PMIX|OMPI)_.*|(.*_)?(RANK|WORLD_SIZE)")


class Range(BaseModel, extra="forbid"):
    """Numbers from `low` to `high`, both included; integers if both are integers."""

    low: int | float
    high: int | float
    log: bool = False
    step: int | float | None = None


class Sweep(BaseModel, extra="forbid"):
    """A sweep over the keys of `interventune train fit`.

    Args:
        metric: key of metrics.json by which points are compared.
        space: the values of every swept key: a list, or for `tpe` also a range.
        flags: further arguments of every point; `{KEY}` in them is the point's value of a swept
            key.
        sampler: `grid` takes every combination, `tpe` draws `trials` of them, based on the results
            so far.
        keep: `all` compares the last weights. `best` chooses best.ckpt by the metric, compares its
            scores, and reduces a finished point to its weights.
    """

    study: str = Field(pattern=r"^[\w.-]+$")
    metric: str
    direction: Literal["minimize", "maximize"]
    configs: list[str]
    space: dict[str, list[Any] | Range] = Field(min_length=1)
    flags: list[str] = []
    sampler: Literal["grid", "tpe"] = "grid"
    trials: int = 0
    keep: Literal["all", "best"] = "all"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        ours = {*RESERVED, *self.best_checkpoint()}
        flags = {flag[2:].partition("=")[0] for flag in self.flags}
        if both := flags & {*self.space} | ours & {*flags, *self.space}:
            raise ValueError(
                f"--{min(both)}: is set by the sweep; leave it out (--over changes swept values)"
            )
        for key, values in self.space.items():
            if isinstance(values, list):
                # Lists and mappings as text of flags: so they compare, and fit into a table.
                texts = [flag_text(x) if isinstance(x, list | dict) else x for x in values]
                self.space[key] = texts
                if not 0 < len(values) == len({*map(flag_text, values)}):
                    raise ValueError(f"space: {key}: expected values that differ, found {values}")
            elif self.sampler == "grid":
                raise ValueError(f"space: {key}: a grid takes a list of values; ranges are for tpe")
            elif values.low > values.high:
                raise ValueError(f"space: {key}: low={values.low} is above high={values.high}")
        if (self.sampler == "tpe") != (self.trials > 0):
            raise ValueError("trials: say how many tpe draws; a grid takes every combination")
        return self

    def best_checkpoint(self) -> dict[str, str]:
        """Return the settings of `keep: best`."""
        if self.keep == "all":
            return {}
        monitor = {"checkpoint.monitor": self.metric, "checkpoint.mode": self.direction[:3]}
        return monitor | {"checkpoint.save_weights_only": "true"}

    def first(self) -> Values:
        """Return a point: the first of listed values, and the lower ends of ranges."""
        return {
            key: values.low if isinstance(values, Range) else values[0]
            for key, values in self.space.items()
        }

    def arguments(self, parameters: Values) -> list[str]:
        """Return the arguments of `fit`, except for the run's folder."""
        flags = [*self.flags, *(f"--{key}={x}" for key, x in self.best_checkpoint().items())]
        texts = {key: flag_text(value) for key, value in parameters.items()}
        for key, text in texts.items():
            flags = [flag.replace(f"{{{key}}}", text) for flag in flags]
        configs = (f"-c={path}" for path in self.configs)
        return [*configs, *flags, *(f"--{key}={text}" for key, text in texts.items())]


class Point:
    """Values of the swept keys, and the folder named after them."""

    def __init__(self, sweep: Sweep, study: Path, parameters: Values) -> None:
        self.sweep = sweep
        self.parameters = parameters
        self.name = folder_name(parameters)
        self.folder = study / "points" / self.name
        self.run = self.folder / "run"
        self.result_file = self.folder / "result.json"

    def result(self) -> Values:
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
            began = time.monotonic()
            result: Values = dict.fromkeys(("state", "value", "seconds", "reason"))
            try:
                if not (self.run / "metrics.json").exists():
                    self.fit(lock.fileno())
                result |= {"state": "complete", "value": self.value()}
                outcome = f"{self.sweep.metric} {result['value']:.4g}"
            except Exception as error:
                result |= {"state": "fail", "reason": str(error)}
                outcome = f"fail  {error}"
            result["seconds"] = time.monotonic() - began
            write_text(self.result_file, json.dumps(result) + "\n")
            print(self.name, outcome, sep="  ", file=sys.stderr)

    def fit(self, lock: int) -> None:
        """Start or resume `fit`, which holds the lock too, and wait for it. RuntimeError if it
        fails.
        """
        command = [
            *FIT,
            *self.sweep.arguments(self.parameters),
            f"--run.root={self.folder.parent}",
            f"--run.name={self.name}",
            f"--run.version={self.run.name}",
            "--ckpt_path=auto",
        ]
        log = self.folder / "log.txt"
        with open(log, "ab") as file:
            fit = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,  # Ctrl-C reaches only the worker
                pass_fds=[lock],
                env=own_environment(),
            )
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
            (self.run / "checkpoints/last.ckpt").unlink(missing_ok=True)
        return float(value)


@dataclass
class Grid:
    """The points of a sweep: every combination of the values; the last key changes fastest."""

    sweep: Sweep
    study: Path

    def points(self) -> list[Point]:
        """Return the points that there are by now."""
        space: Any = self.sweep.space
        return [
            Point(self.sweep, self.study, dict(zip(space, values, strict=True)))
            for values in itertools.product(*space.values())
        ]

    def draw(self) -> bool:
        """Add a point, unless there are enough; return whether one was added."""
        return False


def flag_text(value: Any) -> str:
    """Return a value as text after `--key=`."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def folder_name(parameters: Values) -> str:
    """Return the folder of a point, named by its values:
    `trainer.max_epochs=3,model.learning_rate=1e-05`.
    """
    text = ",".join(f"{key}={flag_text(value)}" for key, value in parameters.items())
    name = re.sub(r"[^\w.,=+-]+", "_", text)
    if name == text and len(name) <= LONGEST_NAME:
        return name
    return f"{name[:LONGEST_NAME]}-{text_digest(text)[:8]}"


def own_environment() -> dict[str, str]:
    """Return the environment without the variables that would make `fit` a process of the
    surrounding job.
    """
    return {name: value for name, value in os.environ.items() if not OTHER_JOB.fullmatch(name)}
