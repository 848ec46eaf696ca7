"""A run's folder, which no other process shares, the checkpoint that it resumes from, its loggers,
and metrics.csv, the curves, which survive a resume and a kill.
"""

import atexit
import csv
import glob
import io
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout
from jsonargparse.typing import NonNegativeFloat, NonNegativeInt
from pytorch_lightning.loggers import CSVLogger, Logger, WandbLogger
from pytorch_lightning.utilities import rank_zero_only

from interventune.storage.documents import atomic_text, read_text

COLUMNS = ("step", "epoch", "metric", "value")
"""Of metrics.csv."""
LET_GO_S = 10.0
"""Maximum time for which the workers of a killed run may hold its folder."""


@dataclass(kw_only=True)
class Run:
    """Run: its folder, ROOT/NAME/VERSION, and its logs.

    Args:
        name: Folder for the runs of an experiment.
        version: Folder for this run; empty: the first free `version_N`.
        root: Folder for all runs.
        wandb: Log to wandb as well as to metrics.csv. `offline` keeps the files in the run's folder
            until `wandb sync`; `online` needs a login.
        save_every_minutes: How often training writes `checkpoints/last.ckpt`, besides after each
            epoch and validation and when the run is stopped; 0: not by time.
        save_every_n_steps: The same, in optimizer steps.
        keep_every_n_steps: Keep the weights of every N-th step, and of the start, as
            `checkpoints/step_NNNNNN.ckpt`; 0: none.
    """

    name: str = "run"
    version: str = ""
    root: str = "runs"
    wandb: Literal["offline", "online", "off"] = "off"
    save_every_minutes: NonNegativeFloat = 15.0
    save_every_n_steps: NonNegativeInt = 0
    keep_every_n_steps: NonNegativeInt = 0

    def __post_init__(self) -> None:
        for option, value in (("name", self.name), ("version", self.version)):
            path = Path(value)
            if path.is_absolute() or ".." in path.parts or not value.isprintable():
                raise ValueError(
                    f"run.{option}: {value!r} leaves the folder of all runs (run.root), or is no "
                    "printable name"
                )

    @property
    def home(self) -> Path:
        return Path(self.root) / self.name

    def last_checkpoint(self) -> Path | None:
        """Return `last.ckpt` of this version, or of the one written to last; None if
        there is none.
        """
        checkpoints = self.home.glob(f"{glob.escape(self.version) or '*'}/checkpoints/last.ckpt")
        return max(checkpoints, key=lambda path: path.stat().st_mtime, default=None)

    def refuse_taken(self) -> None:
        """ValueError if this version's folder contains another run that has trained."""
        folder = self.home / self.version
        if self.version and any(
            (folder / name).exists() for name in ("checkpoints", "metrics.json")
        ):
            raise ValueError(
                f"run.version: {folder} holds another run; choose another version, or continue "
                "that one with --ckpt_path auto"
            )

    def lock(self, *, wait: float = 0.0) -> FileLock | None:
        """Create and lock the folder of this version: while this process lives and refers to the
        lock, no other one writes there. None in all processes but the first. ValueError if another
        process still holds it after `wait` seconds.
        """
        if rank_zero_only.rank:
            return None
        folder = self.home / self.version
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock", is_singleton=True)
        try:
            lock.acquire(timeout=wait)
        except Timeout:
            raise ValueError(
                f"{folder} is being trained by another process; wait until it ends, or choose "
                "another run.version or run.name"
            ) from None
        return lock

    def new_version(self) -> str:
        """Create the folder of the first free `version_N`; no other process can create
        the same one.
        """
        for number in count():
            with suppress(FileExistsError):
                (self.home / f"version_{number}").mkdir(parents=True)
                return f"version_{number}"
        raise AssertionError

    def loggers(self, resumed_step: int | None) -> list[Logger]:
        """Return the run's own loggers, the first of which names its folder. `resumed_step` is the
        step from which it resumes; None starts a new run.
        """
        curves = CurveLogger(self, resumed_step)
        if self.wandb == "off":
            return [curves]
        name = f"{self.name}/{curves.version}"
        offline = self.wandb == "offline"
        return [curves, WandbLogger(name, curves.log_dir, project="interventune", offline=offline)]


class CurveLogger(CSVLogger):
    """metrics.csv with a line `step,epoch,metric,value` for every value, in a folder that this
    process has locked. Lines are appended, so a kill loses none; a resumed run drops those after
    its step.
    """

    def __init__(self, run: Run, resumed_step: int | None) -> None:
        super().__init__(run.root, name=run.name)
        self.run = run
        self.resumed_step = resumed_step
        self.step = resumed_step or 0

    @cached_property
    def version(self) -> str:
        """The folder's name; on first use, the first process creates and locks it, and tells the
        others.
        """
        if rank_zero_only.rank:
            return self.run.version or "version_of_the_first_process"
        run = replace(self.run, version=self.run.version or self.run.new_version())
        self.folder_lock = run.lock()
        if self.resumed_step is None:
            run.refuse_taken()
        folder = run.home / run.version
        atexit.register(remove_unused, folder)
        keep_curves(folder / "metrics.csv", self.resumed_step or 0)
        return run.version

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Append the values of a step; without one, of the step before. Lightning counts steps from
        0, checkpoints count them from 1.
        """
        self.step = self.step if step is None else step + 1
        place = self.step, metrics.get("epoch", "")
        rows = [(*place, name, float(x)) for name, x in metrics.items() if name != "epoch"]
        with open(Path(self.log_dir) / "metrics.csv", "a", newline="", encoding="utf-8") as file:
            header = [] if file.tell() else [COLUMNS]
            csv.writer(file, lineterminator="\n").writerows([*header, *rows])

    @rank_zero_only
    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """Do nothing: config.yaml has them."""

    def save(self) -> None:
        """Do nothing: all lines are already written."""

    @property
    def experiment(self) -> Any:
        """None: Lightning's writer would delete the file of a resumed run."""


def remove_unused(folder: Path) -> None:
    """Remove the folder of a run that failed before it wrote anything."""
    if [path.name for path in folder.glob("*")] == [".lock"]:
        (folder / ".lock").unlink()
        folder.rmdir()


def keep_curves(path: Path, step: int) -> None:
    """Drop the lines of a metrics.csv after `step`, and incomplete ones."""
    if path.exists():
        lines = read_text(path)
        # Until the last end of a line: a number that is cut off is a number too.
        rows = csv.reader(io.StringIO(lines[: lines.rfind("\n") + 1]))
        whole = (row for row in rows if len(row) == len(COLUMNS) and row[0].isdecimal())
        earlier = [row for row in whole if int(row[0]) <= step]
        with atomic_text(path) as file:
            csv.writer(file, lineterminator="\n").writerows([COLUMNS, *earlier])
