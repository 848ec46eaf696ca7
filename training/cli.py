"""The command line of training: LightningCLI, with typed constructors as the schema.

    python -m training fit -c configs/experiments/squad.yaml -c configs/backbones/bert_base.yaml \\
        --data.train_qa=train.json --data.val_qa.main=dev.json
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import ModelCheckpoint, TQDMProgressBar
from pytorch_lightning.cli import ArgsType, LightningArgumentParser, LightningCLI

from data_modules.batching.data_module import TextDataModule
from models.backbones import Backbone, CheckpointError
from models.checkpoint import inspect
from models.heads.choice import ChoiceModel
from models.heads.span import SpanModel
from training.callbacks.compiled import Compiled
from training.callbacks.run_record import RunRecord
from training.loggers import Run, run_loggers
from training.modules.answers import resolved_heads
from training.modules.fine_tuning import FineTuning
from training.stopping.batch_seed import BatchSeed
from training.stopping.checkpoint_io import AtomicCheckpointIO
from training.stopping.global_batch import keep_global_batch
from training.stopping.last_checkpoint import LastCheckpoint
from training.stopping.processes import expect_no_gradient, install
from training.trainer_checks import MonitorCheck, check_trainer_keys

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
SUBCOMMANDS = ("fit", "validate", "test", "predict")


class InterventuneCLI(LightningCLI):
    """Adds the top-level keys `backbone`, `run` and `checkpoint`."""

    resumed_step: int | None = None
    """Where the run goes on, with `--ckpt_path last`."""

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Declare the keys, and link the backbone to all who need it."""
        parser.add_argument("--backbone", type=Backbone, required=True)
        parser.add_argument("--run", type=Run, default=Run())
        parser.link_arguments("backbone", "model.init_args.backbone")
        parser.link_arguments("backbone", "data.init_args.tokenizer", compute_fn=_tokenizer)
        parser.link_arguments("backbone", "data.init_args.architecture", compute_fn=_architecture)
        parser.add_lightning_class_args(ModelCheckpoint, "checkpoint")
        parser.set_defaults(
            {
                "checkpoint.filename": "best",
                "checkpoint.auto_insert_metric_name": False,
                "checkpoint.enable_version_counter": False,
            }
        )

    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        """Parse, then look at the checkpoint before anybody tries to load it."""
        super().parse_arguments(parser, args)
        config = self.config[self.config.subcommand]
        check_trainer_keys(config.trainer)
        path = config.get("ckpt_path")
        if path and path not in ("last", "auto"):
            inspect(path).require(architecture=config.backbone.architecture, heads=heads_of(config))

    def before_instantiate_classes(self) -> None:
        """Resolve the run's folder: a new one, or the latest that can go on (`--ckpt_path last|auto`)."""
        _quiet_transformers()
        assert self.subcommand is not None
        config = self.config[self.subcommand]
        run: Run = config.run
        if config.data.init_args.get("seed", 0) is None:
            config.data.init_args.seed = config.get("seed_everything") or 0
        home = Path(run.root) / run.name
        wanted = config.get("ckpt_path")
        if wanted in ("last", "auto"):
            last = latest_checkpoint(home, run.version)
            if last is not None:
                config.ckpt_path, run.version = str(last), last.parent.parent.name
                self.resumed_step = _resumable(last, config)
                return
            if wanted == "last" or self.subcommand != "fit":
                where = home / (run.version or "*")
                raise ValueError(f"--ckpt_path {wanted}: no checkpoint under {where}; start without it")
            config.ckpt_path = None
            return  # a folder that a run left before its first checkpoint is started over
        if run.version and (home / run.version / "config.yaml").exists():
            raise ValueError(
                f"run.version: {home / run.version} holds another run; choose another version, or continue "
                "that one with --ckpt_path last (or auto)"
            )

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        """Always a CSV file, wandb beside it unless off; checkpoints written whole; our own `fsdp`."""
        assert self.subcommand is not None
        config = self.config[self.subcommand]
        run: Run = config.run
        if config.trainer.logger is None:
            kwargs["logger"] = run_loggers(run, self.resumed_step)
        if config.trainer.strategy == "fsdp":
            from training.strategies import FullyShardedStrategy  # half a second that only it needs

            kwargs["strategy"] = FullyShardedStrategy()
        if config.trainer.enable_progress_bar is not False and not config.trainer.callbacks:
            # Each refresh shows a loss, for which a GPU has to stop: as often as curves are written, no more.
            # (The one of rich asks in every step.)
            kwargs["callbacks"] = [
                TQDMProgressBar(refresh_rate=max(1, config.trainer.log_every_n_steps or 10))
            ]
        plugins = self._get(self.config_init, "trainer").plugins or []
        kwargs["plugins"] = [*(plugins if isinstance(plugins, list) else [plugins]), AtomicCheckpointIO()]
        trainer = super().instantiate_trainer(**kwargs)
        keep_global_batch(trainer, run.planned_processes)
        expect_no_gradient(self.model)
        # After ModelCheckpoint, so that what it chose is in last.ckpt.
        trainer.callbacks += [
            MonitorCheck(config.get("checkpoint", {}).get("monitor") or ""),
            BatchSeed(int(config.get("seed_everything") or 0)),
            *([Compiled()] if run.compile else []),
            LastCheckpoint(every_n_steps=run.save_every_n_steps, every_minutes=run.save_every_minutes),
        ]
        return trainer


def heads_of(config: Any) -> str:
    """The kind of heads that the configured module has; empty where that is not known (a module of the
    user's own)."""
    model = config.get("model")
    if model is None or not str(model.class_path).startswith("training."):
        return ""
    if str(model.class_path).endswith(".ChoiceModule"):
        return ChoiceModel.heads
    if not str(model.class_path).endswith(".AnswerModule"):
        return SpanModel.heads
    chosen = model.init_args.get("heads", "auto")
    return resolved_heads(chosen, config.backbone.architecture)


def latest_checkpoint(home: Path, version: str) -> Path | None:
    """`last.ckpt` of the given version, or of the one that was written to last; None: there is none."""
    found = sorted(home.glob(f"{version or '*'}/checkpoints/last.ckpt"), key=lambda p: p.stat().st_mtime)
    return found[-1] if found else None


def _resumable(last: Path, config: Any) -> int:
    """The step at which the run goes on. CheckpointError, with the alternatives, where it cannot."""
    try:
        info = inspect(str(last))
        return info.require(architecture=config.backbone.architecture, heads=heads_of(config)).step
    except CheckpointError as error:
        best = last.with_name("best.ckpt")
        other = f"go on from {best} (--ckpt_path {best}), or " if best.exists() else ""
        raise CheckpointError(f"{error}; {other}remove it to start over") from error


def _tokenizer(backbone: Backbone) -> str:
    return backbone.tokenizer or backbone.checkpoint


def _architecture(backbone: Backbone) -> str:
    return backbone.architecture


def main(args: list[str] | None = None) -> InterventuneCLI:
    """Parse `args` (default: the command line) and run the subcommand."""
    _quiet()
    install()
    return InterventuneCLI(
        FineTuning,
        TextDataModule,
        subclass_mode_model=True,
        subclass_mode_data=True,
        save_config_callback=RunRecord,
        auto_configure_optimizers=False,
        seed_everything_default=0,
        # argparse would take a misspelt flag for an abbreviation of another one.
        parser_kwargs={"allow_abbrev": False},
        args=with_base(sys.argv[1:] if args is None else args),
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
    warnings.filterwarnings("ignore", ".*Experiment logs directory.*")  # ours to keep, see keep_curves
    warnings.filterwarnings("ignore", ".*across ranks is zero.*")  # no validation sets were asked for
    warnings.filterwarnings("ignore", ".*args parameter is intended to run from within Python.*")
    warnings.filterwarnings("ignore", ".*is smaller than the logging interval.*")
    warnings.filterwarnings("ignore", ".*`isinstance.treespec, LeafSpec.` is deprecated.*")
    warnings.filterwarnings("ignore", ".*recommended to use .self.log.*sync_dist.*")  # metrics are summed
    connector = logging.getLogger("pytorch_lightning.trainer.connectors.checkpoint_connector")
    connector.addFilter(lambda record: "`weights_only` was not set" not in record.getMessage())
    rank_zero = logging.getLogger("pytorch_lightning.utilities.rank_zero")
    rank_zero.addFilter(lambda record: "litlogger" not in record.getMessage())


def _quiet_transformers() -> None:
    """The same for transformers; later, because printing a configuration does without it."""
    from transformers.utils.logging import disable_progress_bar

    logging.getLogger("transformers").setLevel(logging.ERROR)
    disable_progress_bar()  # of reading weights, a blink
