"""The command line of training: LightningCLI, with typed constructors as the schema.

    python -m training fit -c configs/experiments/squad.yaml -c configs/backbones/bert_base.yaml \\
        --data.train_qa=train.json --data.val_qa.main=dev.json
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytorch_lightning as pl
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI
from pytorch_lightning.loggers import CSVLogger, Logger, WandbLogger

from data_modules.qa import QADataModule
from models.backbones import Backbone
from training.callbacks.run_record import RunRecord
from training.qa_module import QAModule

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
SUBCOMMANDS = ("fit", "validate", "test", "predict")


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


class InterventuneCLI(LightningCLI):
    """Adds the top-level keys `backbone`, `run` and `checkpoint`."""

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Declare the keys, and link the backbone to all who need it."""
        parser.add_argument("--backbone", type=Backbone, required=True)
        parser.add_argument("--run", type=Run, default=Run())
        parser.link_arguments("backbone", "model.init_args.backbone")
        parser.link_arguments("backbone", "data.tokenizer", compute_fn=_tokenizer)
        parser.link_arguments("backbone", "data.architecture", compute_fn=_architecture)
        parser.add_lightning_class_args(ModelCheckpoint, "checkpoint")
        parser.set_defaults(
            {
                "checkpoint.filename": "best",
                "checkpoint.save_last": True,
                "checkpoint.auto_insert_metric_name": False,
                "checkpoint.enable_version_counter": False,
            }
        )

    def before_instantiate_classes(self) -> None:
        """Resolve the run's folder: a new one, or, with `--ckpt_path last`, the latest that can go on."""
        assert self.subcommand is not None
        config = self.config[self.subcommand]
        run: Run = config.run
        home = Path(run.root) / run.name
        if config.get("ckpt_path") == "last":
            last = latest_checkpoint(home, run.version)
            config.ckpt_path, run.version = str(last), last.parent.parent.name
        elif run.version and (home / run.version / "config.yaml").exists():
            raise ValueError(
                f"run.version: {home / run.version} holds another run; choose another version, or continue "
                "that one with --ckpt_path last"
            )

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        """Always a CSV file; wandb beside it unless off."""
        assert self.subcommand is not None
        run: Run = self.config[self.subcommand].run
        if self.config[self.subcommand].trainer.logger is None:
            kwargs["logger"] = run_loggers(run)
        return super().instantiate_trainer(**kwargs)


def run_loggers(run: Run) -> list[Logger]:
    """The run's loggers; the first one names its folder."""
    csv = CSVLogger(run.root, name=run.name, version=run.version or None)
    if run.wandb == "off":
        return [csv]
    Path(csv.log_dir).mkdir(parents=True, exist_ok=True)
    extra = WandbLogger(
        name=f"{run.name}/{Path(csv.log_dir).name}",
        save_dir=csv.log_dir,
        project=run.wandb_project,
        offline=run.wandb == "offline",
    )
    return [csv, extra]


def latest_checkpoint(home: Path, version: str) -> Path:
    """`last.ckpt` of the given version, or of the version that was written to last.

    Raises:
        ValueError: there is none.
    """
    found = sorted(home.glob(f"{version or '*'}/checkpoints/last.ckpt"), key=lambda p: p.stat().st_mtime)
    if not found:
        raise ValueError(f"--ckpt_path last: no checkpoint under {home / (version or '*')}; start without it")
    return found[-1]


def _tokenizer(backbone: Backbone) -> str:
    return backbone.tokenizer or backbone.checkpoint


def _architecture(backbone: Backbone) -> str:
    return backbone.architecture


def main(args: list[str] | None = None, *, run: bool = True) -> InterventuneCLI:
    """Parse `args` (default: the command line) and run the subcommand.

    With `run=False` everything is built and nothing started; `args` then has no subcommand.
    """
    _quiet()
    return InterventuneCLI(
        QAModule,
        QADataModule,
        subclass_mode_model=True,
        save_config_callback=RunRecord,
        auto_configure_optimizers=False,
        seed_everything_default=0,
        args=with_base(sys.argv[1:] if args is None else args),
        run=run,
    )


def with_base(args: list[str]) -> list[str]:
    """`args` with configs/base.yaml as the first configuration file, so that every other one overrides it.

    (jsonargparse's default_config_files would be checked on their own, without the required backbone.)
    """
    at = 1 if args and args[0] in SUBCOMMANDS else 0
    return [*args[:at], "--config", str(CONFIGS / "base.yaml"), *args[at:]]


def _quiet() -> None:
    """Keep the screen for what the user asked for."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    warnings.filterwarnings("ignore", ".*does not have many workers.*")
    warnings.filterwarnings("ignore", ".*pin_memory.*")
    warnings.filterwarnings("ignore", ".*`isinstance.treespec, LeafSpec.` is deprecated.*")
    logging.getLogger("transformers").setLevel(logging.ERROR)
