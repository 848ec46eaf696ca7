"""The command line of training: LightningCLI, with typed constructors as the schema.

    interventune train fit -c configs/experiments/squad.yaml -c configs/backbones/bert_base.yaml \\
        --data.train_qa=train.json --data.val_qa.main=dev.json
"""

from __future__ import annotations

import logging
import os
import re
import sys
import warnings
from argparse import ArgumentError
from collections.abc import Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytorch_lightning as pl
import yaml
from filelock import FileLock
from jsonargparse import Namespace
from pytorch_lightning.callbacks import ModelCheckpoint, ProgressBar, TQDMProgressBar
from pytorch_lightning.cli import ArgsType, LightningArgumentParser, LightningCLI
from pytorch_lightning.loggers import Logger
from pytorch_lightning.plugins import CheckpointIO

from data_modules.batching.data_module import TextDataModule
from models.backbones import Backbone
from models.checkpoint import inspect
from storage.json_files import load_json
from training.callbacks.eval_sets import FinalValidation, MonitorCheck
from training.callbacks.run_record import RunRecord
from training.configs import CONFIGS, checked_configs, shortened
from training.modules.fine_tuning import FineTuning
from training.precision import Trainer, faster_precision
from training.run import LET_GO_S, Run
from training.stopping.checkpoint_io import AtomicCheckpointIO
from training.stopping.finite_loss import FiniteLoss
from training.stopping.last_checkpoint import BatchSeed, LastCheckpoint

SUBCOMMANDS = ("fit", "validate", "test", "predict")

EVAL_SETS = re.compile(r"--data\.(init_args\.)?(val|test|predict)_(qa|groups|choices)")


class WholeWords(LightningArgumentParser):
    """A parser that takes no misspelt flag for an abbreviation of another; and so those of nested classes."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **options})


class InterventuneCLI(LightningCLI):
    """Lightning's command line with the top-level keys `backbone`, `run` and `checkpoint`."""

    resumed_step: int | None = None
    """Where the run goes on, with `--ckpt_path last` or `auto`."""
    start_over = False
    """Whether a folder without a checkpoint may be used again, as with `auto`."""
    folder_lock: FileLock | None = None

    def __init__(self, args: list[str]) -> None:
        self.command = args[0] if args and args[0] in SUBCOMMANDS else ""
        at = 1 if self.command else 0
        super().__init__(
            FineTuning,
            TextDataModule,
            trainer_class=Trainer,
            subclass_mode_model=True,
            subclass_mode_data=True,
            save_config_callback=RunRecord,
            auto_configure_optimizers=False,
            seed_everything_default=0,
            parser_class=WholeWords,
            parser_kwargs={"exit_on_error": False},
            # base.yaml comes first, so that every other file overrides it. (default_config_files would be
            # checked on their own, without the required backbone.)
            args=[*args[:at], "--config", str(CONFIGS / "base.yaml"), *args[at:]],
        )

    def subcommands(self) -> dict[str, set[str]]:
        """The wanted subcommand alone, where one is: each costs a quarter of the parser's time."""
        every = LightningCLI.subcommands()
        return {self.command: every[self.command]} if self.command else every

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Declare the keys, and link the backbone to all who need it."""
        parser.add_argument("--backbone", type=Backbone, required=True)
        parser.add_argument("--run", type=Run, default=Run())
        parser.link_arguments("backbone", "model.init_args.backbone")
        parser.link_arguments(
            "backbone", "data.init_args.tokenizer", compute_fn=lambda b: b.tokenizer or b.checkpoint
        )
        parser.link_arguments("backbone", "data.init_args.architecture", compute_fn=lambda b: b.architecture)
        parser.add_lightning_class_args(ModelCheckpoint, "checkpoint")
        parser.set_defaults(
            {
                "checkpoint.filename": "best",
                "checkpoint.auto_insert_metric_name": False,
                "checkpoint.enable_version_counter": False,
            }
        )

    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        """Parse, then look at the checkpoint before anybody tries to load it.

        Raises:
            ValueError: a key or a value is wrong; in one line with the path of the key.
        """
        try:
            super().parse_arguments(parser, args)
        except ArgumentError as error:
            raise ValueError(shortened(str(error))) from error
        config = self.config[self.config.subcommand]
        seed = config.get("seed_everything")
        if not isinstance(seed, bool) and not 0 <= (seed or 0) < 2**32:
            raise ValueError(f"seed_everything: takes 0 to {2**32 - 1}, got {seed}")
        path = config.get("ckpt_path")
        if path and path not in ("last", "auto"):
            info = inspect(path).require(architecture=config.backbone.architecture, heads=heads_of(config))
            if self.config.subcommand == "fit" and not info.resumable:
                raise ValueError(
                    f"ckpt_path: {path} holds weights alone; start anew from it with --backbone.checkpoint"
                )

    def before_instantiate_classes(self) -> None:
        """Settle seeds, the run's folder and the precision."""
        # Late, because printing a configuration does without it.
        from transformers.utils.logging import disable_progress_bar

        logging.getLogger("transformers").setLevel(logging.ERROR)
        disable_progress_bar()  # of reading weights, a blink
        assert self.subcommand is not None
        config = self.config[self.subcommand]
        if "verbose" in config:
            config.verbose = False  # our lines instead of Lightning's
        follow_seed(config, int(config.get("seed_everything") or 0))
        self.settle_folder(config)
        choose_precision(config)

    def settle_folder(self, config: Any) -> None:
        """A new folder, or the latest run that can go on."""
        run = Run(**vars(config.run))
        wanted = config.get("ckpt_path")
        self.start_over = wanted == "auto"
        if wanted not in ("last", "auto"):
            run.refuse_taken()
            return
        if (last := run.last_checkpoint()) is not None:
            config.ckpt_path, config.run.version = str(last), last.parent.parent.name
            self.folder_lock = Run(**vars(config.run)).lock(
                wait=LET_GO_S
            )  # its last checkpoint will not change
            info = inspect(str(last)).require(
                architecture=config.backbone.architecture, heads=heads_of(config)
            )
            self.resumed_step = info.step
            return
        if wanted == "last" or self.subcommand != "fit":
            where = run.home / (run.version or "*")
            raise ValueError(f"--ckpt_path {wanted}: no checkpoint under {where}; start without it")
        config.ckpt_path = None  # a folder that a run left before its first checkpoint is started over

    def after_fit(self) -> None:
        """Where the run is, and what best.ckpt was chosen by."""
        if (folder := self._written()) is not None:
            metrics = load_json(folder / "metrics.json")
            monitor = self.config[self.command].checkpoint.monitor
            chosen = f", {monitor} {metrics[monitor]:.4g}" if metrics.get(monitor) is not None else ""
            print(f"run: {folder}, {metrics['step']} steps{chosen} (all: metrics.json)", flush=True)

    def after_validate(self) -> None:
        """The metrics."""
        if (folder := self._written()) is not None:
            for name, value in self.trainer.callback_metrics.items():
                print(f"{name} {float(value):.4g}")
            print(f"written to {folder / 'metrics.json'}", flush=True)

    after_test = after_validate

    def after_predict(self) -> None:
        """Where the answers are."""
        if (folder := self._written()) is not None:
            print(f"written to {folder / 'predictions'}", flush=True)

    def _written(self) -> Path | None:
        """The folder of the run in the process that has written there."""
        if self.trainer.fast_dev_run or not self.trainer.is_global_zero:
            return None
        return Path(self.trainer.loggers[0].log_dir or "")

    def instantiate_classes(self) -> None:
        """Build model, data and trainer. ValueError in one line where a constructor refuses an option."""
        # What Lightning takes for hyper-parameters; its own dump would check all values a second time.
        how = {"format": "yaml", "skip_link_targets": False, "skip_unset": False, "skip_validation": True}
        self.config_dump = yaml.safe_load(self.parser.dump(self.config, **how))[self.subcommand]
        try:
            super().instantiate_classes()
        except ValueError as error:
            raise ValueError(shortened(str(error))) from error

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        """The run's loggers beside those of the user; checkpoints written whole; our own `fsdp`."""
        assert self.subcommand is not None
        config, configured = self.config[self.subcommand], self.config_init[self.subcommand].trainer
        run = Run(**vars(config.run))
        loggers = [logger for logger in _listed(configured.logger) if isinstance(logger, Logger)]
        kwargs["logger"] = [*run.loggers(self.resumed_step, over=self.start_over), *loggers]
        plugins = _listed(configured.plugins)
        own_writer = any(isinstance(plugin, CheckpointIO) for plugin in plugins)
        kwargs["plugins"] = plugins if own_writer else [*plugins, AtomicCheckpointIO()]
        if config.trainer.strategy == "fsdp":
            from training.strategies import FullyShardedStrategy  # half a second that only it needs

            kwargs["strategy"] = FullyShardedStrategy()
            kwargs["inference_mode"] = False  # tensors made there could not be part of a graph later
        callbacks = _listed(configured.callbacks)
        if config.trainer.enable_progress_bar is not False and not any(
            isinstance(callback, ProgressBar) for callback in callbacks
        ):
            # Each refresh shows a loss, for which a GPU has to stop: as often as curves are written, no more.
            # (The one of rich asks in every step.)
            callbacks.append(TQDMProgressBar(refresh_rate=max(1, config.trainer.log_every_n_steps or 10)))
        seed = BatchSeed(int(config.get("seed_everything") or 0))
        kwargs["callbacks"] = [*callbacks, FiniteLoss(), MonitorCheck(), FinalValidation(), seed]
        trainer = super().instantiate_trainer(**kwargs)
        # After ModelCheckpoint, so that what it chose is in last.ckpt.
        trainer.callbacks.append(
            LastCheckpoint(every_n_steps=run.save_every_n_steps, every_minutes=run.save_every_minutes)
        )
        return trainer


def heads_of(config: Any) -> str:
    """The kind of heads that the configured module has; empty where that is not known (a module of the
    user's own)."""
    model = config.get("model")
    if model is None or not str(model.class_path).startswith("training."):
        return ""
    kind: type[FineTuning] = resolve_name(model.class_path)
    return kind.heads(config.backbone.architecture, model.init_args)


def choose_precision(config: Any) -> None:
    """`auto` becomes what the run had before, or the faster one.

    With adapters `bf16-true` rounds the frozen weights alone, in place: what is trained would lose most steps
    of a small learning rate to rounding.

    Raises:
        ValueError: weights are to be kept otherwise than training allows.
    """
    backbone, precision = config.backbone, str(config.trainer.precision)
    if precision == "auto":
        environment = Path(config.get("ckpt_path") or "").parent.parent / "environment.json"
        before = load_json(environment) if environment.exists() else {}
        precision = config.trainer.precision = before.get("precision") or faster_precision()
    if not backbone.lora_rank:
        if backbone.frozen_weights != "float32":
            raise ValueError("backbone.frozen_weights: no weights are frozen; set backbone.lora_rank, 8 say")
        return
    if precision == "16-true":
        raise ValueError("trainer.precision: 16-true rounds adapters to 16 bits; take bf16-true or 16-mixed")
    if precision == "bf16-true":
        config.trainer.precision = "32-true"
        for part in (backbone, config.model.init_args.backbone):
            part.frozen_weights = "bfloat16"


def follow_seed(config: Any, seed: int) -> None:
    """Give every seed of model and data that is null the run's, in place."""
    for section in ("model", "data"):
        options = config.get(f"{section}.init_args") or Namespace()
        for key, value in list(options.items()):
            if key.rpartition(".")[2].endswith("seed") and value is None:
                options[key] = seed


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def main(args: list[str] | None = None) -> InterventuneCLI:
    """Parse `args` (default: the command line) and run the subcommand."""
    return run_command(checked_configs(sys.argv[1:] if args is None else args))


def run_command(arguments: Sequence[str]) -> InterventuneCLI:
    """The same for arguments whose configurations have been found and checked."""
    quiet()
    return InterventuneCLI(spelled_out(arguments))


def spelled_out(arguments: Sequence[str]) -> list[str]:
    """The arguments with `--data.val_qa=SOURCE` as `--data.val_qa.main=SOURCE`, and so for all kinds of sets.
    Steps without a number of epochs are all taken, however few epochs a file names.

    >>> spelled_out(["--data.val_qa=dev.json", "--data.test_groups", "hub:lei:test", "--data.predict_qa={}"])
    ['--data.val_qa.main=dev.json', '--data.test_groups.main', 'hub:lei:test', '--data.predict_qa={}']
    >>> spelled_out(["fit", "--trainer.max_steps=300"])
    ['fit', '--trainer.max_steps=300', '--trainer.max_epochs=-1']
    >>> spelled_out(["fit", "--run.name=--trainer.max_steps=300"])  # the value of another flag
    ['fit', '--run.name=--trainer.max_steps=300']
    """
    found, given = list(arguments), dict[str, str]()
    for at, (flag, following) in enumerate(zip(arguments, [*arguments[1:], ""], strict=True)):
        name, equals, value = flag.partition("=")
        given[name] = value = value if equals else following
        if EVAL_SETS.fullmatch(name) and value not in ("", "null") and value[0] not in "{[-":
            found[at] = f"{name}.main{equals}{value if equals else ''}"
    # Whether a number of epochs comes from a file, the parsed configuration does not say.
    if given.get("--trainer.max_steps", "")[:1].isdecimal() and "--trainer.max_epochs" not in given:
        found.append("--trainer.max_epochs=-1")
    return found


NOISE = re.compile(
    "does not have many workers|pin_memory|across ranks is zero|smaller than the logging interval"
    "|Experiment logs directory"  # ours to keep, see keep_curves
    "|args parameter is intended to run from within Python|`isinstance.treespec, LeafSpec.` is deprecated"
    "|recommended to use .self.log.*sync_dist"  # metrics are summed
    "|`weights_only` was not set|litlogger"
)
"""What Lightning says and nobody has asked for."""


def quiet() -> None:
    """Keep the screen for what the user asked for."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    warnings.filterwarnings("ignore", f".*({NOISE.pattern})")
    for name in ("trainer.connectors.checkpoint_connector", "utilities.rank_zero"):
        logger = logging.getLogger(f"pytorch_lightning.{name}")
        logger.addFilter(lambda record: not NOISE.search(record.getMessage()))
