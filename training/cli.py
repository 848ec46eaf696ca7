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
from typing import Any

import pytorch_lightning as pl
import yaml
from filelock import FileLock
from jsonargparse import DefaultHelpFormatter
from pytorch_lightning.callbacks import ModelCheckpoint, ProgressBar, TQDMProgressBar
from pytorch_lightning.cli import ArgsType, LightningArgumentParser, LightningCLI
from pytorch_lightning.loggers import Logger

from data_modules.batching.data_module import TextDataModule
from models.backbones import Backbone
from models.checkpoint import inspect
from storage.command_line import HelpLayout
from storage.json_files import load_json
from training.callbacks.eval_sets import Watched
from training.callbacks.run_record import RunRecord
from training.configs import CONFIGS, checked_configs, shortened
from training.help import configured, describe, named_class
from training.modules.fine_tuning import FineTuning
from training.precision import Trainer, faster_precision
from training.run import LET_GO_S, Run
from training.stopping.finite_loss import FiniteLoss
from training.stopping.last_checkpoint import AtomicCheckpointIO, BatchSeed, LastCheckpoint

LAYOUT = type("Layout", (HelpLayout, DefaultHelpFormatter), {})


class WholeWords(LightningArgumentParser):
    """A parser that takes no misspelt flag for an abbreviation of another; and so those of nested classes."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **options})


class InterventuneCLI(LightningCLI):
    """Lightning's command line with the top-level keys `backbone`, `run` and `checkpoint`."""

    resumed_step: int | None = None
    """Where the run goes on with `--ckpt_path last` or `auto`: 0 in a folder without a checkpoint."""
    folder_lock: FileLock | None = None

    def __init__(self, args: list[str]) -> None:
        self.command = args[0] if args and args[0] in LightningCLI.subcommands() else ""
        at = 1 if self.command else 0
        self.shown = configured(args) if self.command and {"-h", "--help"} & {*args} else {}
        model, data = (named_class(self.shown, section) for section in ("model", "data"))
        # base.yaml comes first, so that every other file overrides it. (default_config_files would be checked
        # on their own, without the required backbone.)
        more = ["--help"] if self.shown else ["--config", str(CONFIGS / "base.yaml"), *args[at:]]
        super().__init__(
            model or FineTuning,
            data or TextDataModule,
            trainer_class=Trainer,
            subclass_mode_model=model is None,
            subclass_mode_data=data is None,
            save_config_callback=RunRecord,
            auto_configure_optimizers=False,
            seed_everything_default=0,
            parser_class=WholeWords,
            parser_kwargs={"exit_on_error": False, "prog": "interventune train", "formatter_class": LAYOUT},
            args=[*args[:at], *more],
        )

    def subcommands(self) -> dict[str, set[str]]:
        """The wanted subcommand alone, where one is: each costs a quarter of the parser's time."""
        every = LightningCLI.subcommands()
        return {self.command: every[self.command]} if self.command else every

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Declare the keys, and link the backbone to all who need it."""
        parser.add_argument("--backbone", type=Backbone, required=True)
        parser.add_argument("--run", type=Run, default=Run())
        model = "model.init_args" if self.subclass_mode_model else "model"
        data = "data.init_args" if self.subclass_mode_data else "data"
        parser.link_arguments("backbone", f"{model}.backbone")
        parser.link_arguments("backbone", f"{data}.tokenizer", lambda b: b.tokenizer or b.checkpoint)
        parser.link_arguments("backbone", f"{data}.architecture", lambda b: b.architecture)
        parser.add_lightning_class_args(ModelCheckpoint, "checkpoint")
        parser.set_defaults(
            {
                "checkpoint.filename": "best",
                "checkpoint.auto_insert_metric_name": False,
                "checkpoint.enable_version_counter": False,
            }
        )

    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        """Parse. ValueError for a wrong key or value, in one line with the path of the key."""
        if self.shown:
            describe(self._subcommand_parsers[self.command], self.command, self.shown)
        try:
            super().parse_arguments(parser, args)
        except ArgumentError as error:
            text = shortened(str(error))
            if re.match(r"backbone\..*Got value: None$|.* required: \w+\.model", text):
                text = "an experiment or a backbone is missing, such as -c squad_ibt -c tiny_roberta"
            raise ValueError(f"{text} (see interventune train {self.command} --help)") from error
        if not 0 <= int(self.config[self.config.subcommand].get("seed_everything") or 0) < 2**32:
            raise ValueError(f"seed_everything: takes 0 to {2**32 - 1}")

    def _parse_ckpt_path(self) -> None:
        """Nothing: our checkpoints hold no hyper-parameters, and `inspect` reads them with one line for a
        wrong file."""

    def before_instantiate_classes(self) -> None:
        """Settle seeds, the run's folder and the precision."""
        # Late, because printing a configuration does without it.
        from transformers.utils.logging import disable_progress_bar

        logging.getLogger("transformers").setLevel(logging.ERROR)
        disable_progress_bar()  # of reading weights, a blink
        config = self.config[self.command]
        if "verbose" in config:
            config.verbose = False  # our lines instead of Lightning's
        follow_seed(config, int(config.get("seed_everything") or 0))
        self.settle_folder(config)
        choose_precision(config)

    def settle_folder(self, config: Any) -> None:
        """A new folder, or the latest run that can go on."""
        run, wanted = Run(**vars(config.run)), config.get("ckpt_path")
        if wanted not in ("last", "auto"):
            run.refuse_taken()
        elif (last := run.last_checkpoint()) is not None:
            config.ckpt_path, config.run.version = str(last), last.parent.parent.name
            # From here on its last checkpoint will not change.
            self.folder_lock = Run(**vars(config.run)).lock(wait=LET_GO_S)
            self.resumed_step = inspect(str(last)).step
        elif wanted == "last" or self.command != "fit":
            where = run.home / (run.version or "*")
            raise ValueError(f"--ckpt_path {wanted}: no checkpoint under {where}; start without it")
        else:  # a folder that a run left before its first checkpoint is started over
            config.ckpt_path, self.resumed_step = None, 0

    def after_fit(self) -> None:
        """Where the run is, and what best.ckpt was chosen by."""
        if folder := self._written():
            monitor, found = self.config[self.command].checkpoint.monitor, self.trainer.callback_metrics
            chosen = f", {monitor} {float(found[monitor]):.4g}" if monitor in found else ""
            print(f"run: {folder}, {self.trainer.global_step} steps{chosen} (all: metrics.json)", flush=True)

    def after_validate(self) -> None:
        if folder := self._written():
            for name, value in self.trainer.callback_metrics.items():
                print(f"{name} {float(value):.4g}")
            print(f"written to {folder}/metrics.json", flush=True)

    after_test = after_validate

    def after_predict(self) -> None:
        if folder := self._written():
            print(f"written to {folder}/predictions", flush=True)

    def _written(self) -> str | None:
        """The folder of the run in the process that has written there."""
        silent = self.trainer.fast_dev_run or not self.trainer.is_global_zero
        return None if silent else self.trainer.loggers[0].log_dir

    def instantiate_classes(self) -> None:
        """Build model, data and trainer. ValueError in one line where a constructor refuses an option, or the
        checkpoint is of another model."""
        # What Lightning takes for hyper-parameters; its own dump would check all values a second time.
        how = {"format": "yaml", "skip_link_targets": False, "skip_unset": False, "skip_validation": True}
        self.config_dump = yaml.safe_load(self.parser.dump(self.config, **how))[self.command]
        try:
            super().instantiate_classes()
        except ValueError as error:
            raise ValueError(shortened(str(error))) from error
        config = self.config[self.command]
        if path := config.get("ckpt_path"):
            model: FineTuning = self.model
            info = inspect(path).require(architecture=config.backbone.architecture, heads=model.model.heads)
            if self.command == "fit" and not info.resumable:
                raise ValueError(f"ckpt_path: {path} holds weights alone: --backbone.checkpoint takes it")

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        """The run's loggers beside those of the user; checkpoints written whole; our own `fsdp`."""
        config, configured = self.config[self.command], self.config_init[self.command].trainer
        run = Run(**vars(config.run))
        loggers = [logger for logger in _listed(configured.logger) if isinstance(logger, Logger)]
        kwargs["logger"] = [*run.loggers(self.resumed_step), *loggers]
        kwargs["plugins"] = [*_listed(configured.plugins), AtomicCheckpointIO()]
        if config.trainer.strategy == "fsdp":
            from training.strategies import FullyShardedStrategy  # half a second that only it needs

            kwargs["strategy"] = FullyShardedStrategy()
            kwargs["inference_mode"] = False  # tensors made there could not be part of a graph later
        callbacks = _listed(configured.callbacks)
        if config.trainer.enable_progress_bar is not False:
            # Each refresh shows a loss, for which a GPU has to stop: as often as curves are written, no more.
            bar = TQDMProgressBar(refresh_rate=config.trainer.log_every_n_steps or 10)
            callbacks += [bar] * all(not isinstance(callback, ProgressBar) for callback in callbacks)
        seed = BatchSeed(int(config.get("seed_everything") or 0))
        kwargs["callbacks"] = [*callbacks, FiniteLoss(), Watched(), seed]
        trainer = super().instantiate_trainer(**kwargs)
        # After ModelCheckpoint, so that what it chose is in last.ckpt.
        trainer.callbacks.append(
            LastCheckpoint(every_n_steps=run.save_every_n_steps, every_minutes=run.save_every_minutes)
        )
        return trainer


def choose_precision(config: Any) -> None:
    """`auto` becomes what the run had before, or the faster one. With adapters `bf16-true` rounds the frozen
    weights alone: what is trained would lose most steps of a small learning rate to rounding."""
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
        options = config.get(f"{section}.init_args") or {}
        for key, value in list(options.items()):
            if key.rpartition(".")[2].endswith("seed") and value is None:
                options[key] = seed


def _listed(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]


def main(args: Sequence[str] | None = None) -> InterventuneCLI:
    """Parse `args` (default: the command line) and run the subcommand."""
    quiet()
    return InterventuneCLI(all_steps(checked_configs(sys.argv[1:] if args is None else args)))


def all_steps(arguments: list[str]) -> list[str]:
    """The arguments; a number of steps among them is taken whole, however few epochs a file names.

    >>> all_steps(["fit", "--trainer.max_steps=300"])
    ['fit', '--trainer.max_steps=300', '--trainer.max_epochs=-1']
    """
    # Whether a number of epochs comes from a file, the parsed configuration does not say.
    words = " ".join(arguments)
    alone = re.search(r" --trainer\.max_steps[= ]\d", words) and "--trainer.max_epochs" not in words
    return [*arguments, "--trainer.max_epochs=-1"] if alone else arguments


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
