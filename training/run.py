"""Where a run is kept: its folder, the checkpoint that it goes on from, and its loggers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pytorch_lightning.loggers import Logger, WandbLogger

from models.checkpoint import CheckpointError, inspect
from training.curves import CurveLogger, keep_curves


@dataclass(kw_only=True)
class Run:
    """Where a run is kept, and who else hears of it.

    Args:
        name: Folder of the runs of one experiment.
        version: Folder of this run; empty takes the next free `version_N`.
        root: Folder of all runs.
        wandb: Log to wandb beside the CSV file that is always written: `offline` keeps its files in the run's
            folder until `wandb sync`, `online` needs a login.
        wandb_project: Project name there.
        save_every_minutes: Rewrite `checkpoints/last.ckpt` so often while training; 0: not by time. It is
            also written after validation and epochs, and when the run is told to stop.
        save_every_n_steps: Likewise, counted in optimizer steps.
        planned_processes: Number of processes that batch sizes and accumulation were chosen for: with another
            number, accumulation is changed so that a step takes as many batches; 0 leaves it as it is.
        compile: Compile the encoder with torch.compile while training.
    """

    name: str = "run"
    version: str = ""
    root: str = "runs"
    wandb: Literal["offline", "online", "off"] = "off"
    wandb_project: str = "interventune"
    save_every_minutes: float = 15.0
    save_every_n_steps: int = 0
    planned_processes: int = 0
    compile: bool = False

    @property
    def home(self) -> Path:
        """The folder of the runs of this experiment."""
        return Path(self.root) / self.name

    def last_checkpoint(self) -> Path | None:
        """`last.ckpt` of this version, or of the one that was written to last; None: there is none."""
        checkpoints = self.home.glob(f"{self.version or '*'}/checkpoints/last.ckpt")
        return max(checkpoints, key=lambda path: path.stat().st_mtime, default=None)

    def refuse_taken(self) -> None:
        """ValueError where another run lies in this version's folder."""
        if self.version and (self.home / self.version / "config.yaml").exists():
            raise ValueError(
                f"run.version: {self.home / self.version} holds another run; choose another version, or "
                "continue that one with --ckpt_path last (or auto)"
            )

    def loggers(self, resumed_step: int | None = None) -> list[Logger]:
        """The run's own loggers; the first one names its folder.

        Args:
            resumed_step: the step that the run goes on from; None starts a new one.
        """
        curves = CurveLogger(self.root, name=self.name, version=self.version or None)
        keep_curves(curves, resumed_step or 0)
        if self.wandb == "off":
            return [curves]
        Path(curves.log_dir).mkdir(parents=True, exist_ok=True)
        extra = WandbLogger(
            name=f"{self.name}/{Path(curves.log_dir).name}",
            save_dir=curves.log_dir,
            project=self.wandb_project,
            offline=self.wandb == "offline",
        )
        return [curves, extra]


def resumable_step(last: Path, architecture: str, heads: str) -> int:
    """The step at which a run goes on. CheckpointError, with the alternatives, where it cannot."""
    try:
        return inspect(str(last)).require(architecture=architecture, heads=heads).step
    except CheckpointError as error:
        best = last.with_name("best.ckpt")
        other = f"go on from {best} (--ckpt_path {best}), or " if best.exists() else ""
        raise CheckpointError(f"{error}; {other}remove it to start over") from error
