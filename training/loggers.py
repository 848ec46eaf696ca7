"""Where a run is kept: one folder, a CSV file of curves that survives a resume, and wandb if wanted."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pytorch_lightning.loggers import CSVLogger, Logger, WandbLogger
from pytorch_lightning.utilities import rank_zero_only

from training.callbacks.run_record import write_text


@dataclass(kw_only=True)
class Run:
    """Where a run is kept, and who else hears of it.

    Args:
        name: Folder of the runs of one experiment.
        version: Folder of this run; empty takes the next free `version_N`.
        root: Folder of all runs.
        wandb: An extra logger, beside the CSV file that is always written: `offline` keeps its files in
            the run's folder until `wandb sync`, `online` needs a login, `off` leaves it out.
        wandb_project: Project name there.
    """

    name: str = "run"
    version: str = ""
    root: str = "runs"
    wandb: Literal["offline", "online", "off"] = "offline"
    wandb_project: str = "interventune"


def run_loggers(run: Run, resumed_step: int | None = None) -> list[Logger]:
    """The run's loggers; the first one names its folder.

    Args:
        run: where to.
        resumed_step: the step that the run goes on from; None starts a new one.
    """
    curves = CSVLogger(run.root, name=run.name, version=run.version or None)
    if resumed_step is not None:
        keep_curves(curves, resumed_step)
    if run.wandb == "off":
        return [curves]
    Path(curves.log_dir).mkdir(parents=True, exist_ok=True)
    extra = WandbLogger(
        name=f"{run.name}/{Path(curves.log_dir).name}",
        save_dir=curves.log_dir,
        project=run.wandb_project,
        offline=run.wandb == "offline",
    )
    return [curves, extra]


@rank_zero_only
def keep_curves(logger: CSVLogger, step: int) -> None:
    """Go on in metrics.csv after the rows below `step`, where CSVLogger alone would delete the file."""
    path = Path(logger.log_dir) / "metrics.csv"
    if not path.exists():
        return
    with open(path, newline="") as file:
        reader = csv.DictReader(file)
        keys = list(reader.fieldnames or [])
        rows = [row for row in reader if int(row.get("step") or 0) < step]
    writer = logger.experiment  # deletes the file
    lines = [",".join(keys), *(",".join(row[key] or "" for key in keys) for row in rows)]
    write_text(path, "\n".join(lines) + "\n")
    writer.metrics_keys = keys
