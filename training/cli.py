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
from typing import Any

import pytorch_lightning as pl
import yaml
from filelock import FileLock
from jsonargparse import DefaultHelpFormatter
from pytorch_lightning.callbacks import ModelCheckpoint, ProgressBar, TQDMProgressBar
from pytorch_lightning.cli import ArgsType, LightningArgumentParser, LightningCLI
from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities import rank_zero_info

from interventune.data_modules.batching.data_module import TextDataModule
from interventune.models.backbones import Backbone
from interventune.models.checkpoint import read_info
from interventune.storage.command_line import HelpLayout
from interventune.storage.json_files import load_json
from interventune.training.callbacks.eval_sets import Watched
from interventune.training.callbacks.run_record import RunRecord, as_saved, best_score
from interventune.training.configs import CONFIGS, checked_configs, shortened
from interventune.training.help import configured, describe, named_class
from interventune.training.modules.fine_tuning import FineTuning
from interventune.training.precision import Trainer, faster_precision
from interventune.training.resuming import changes, refuse_other_data, run_folder
from interventune.training.run import LET_GO_S, Run
from interventune.training.stopping.finite_loss import FiniteLoss
from interventune.training.stopping.last_checkpoint import (
    AtomicCheckpointIO,
    BatchSeed,
    LastCheckpoint,
)

LAYOUT = type("Layout", (HelpLayout, DefaultHelpFormatter), {})


class WholeWords(LightningArgumentParser):
    """A parser that rejects abbreviated flags, and passes this on to nested parsers."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **options})


class InterventuneCLI(LightningCLI):
    """Lightning's command line with the top-level keys `backbone`, `run` and `checkpoint`."""

    resumed_step: int | None = None
    """The step from which `--ckpt_path last` or `auto` resumes: 0 in a folder without a
    checkpoint.
    """
    folder_lock: FileLock | None = None

    def __init__(self, args: list[str]) -> None:
        self.command = args[0] if args and args[0] in LightningCLI.subcommands() else ""
        at = 1 if self.command else 0
        self.shown = configured(args) if self.command and {"-h", "--help"} & {*args} else {}
        model, data = (named_class(self.shown, section) for section in ("model", "data"))
        # base.yaml comes first, so that every other file overrides it. (default_config_files would
        # be checked separately, without the required backbone.)
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
            parser_kwargs={
                "exit_on_error": False,
                "prog": "interventune train",
                "formatter_class": LAYOUT,
            },
            args=[*args[:at], *more],
        )

    def subcommands(self) -> dict[str, set[str]]:
        """Return only the requested subcommand, if any: each takes a quarter of the
        parser's time.
        """
        every = LightningCLI.subcommands()
        return {self.command: every[self.command]} if self.command else every

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Declare the keys, and link the backbone to everything that needs it."""
        parser.add_argument("--backbone", type=Backbone, required=True)
        parser.add_argument("--run", type=Run, default=Run())
        model = "model.init_args" if self.subclass_mode_model else "model"
        data = "data.init_args" if self.subclass_mode_data else "data"
        parser.link_arguments("backbone", f"{model}.backbone")
        parser.link_arguments(
            "backbone", f"{data}.tokenizer", lambda b: b.tokenizer or b.checkpoint
        )
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
                text = (
                    "an experiment or a backbone is missing, such as -c squad_ibt -c tiny_roberta"
                )
            raise ValueError(f"{text} (see interventune train {self.command} --help)") from error
        seed = self.config[self.config.subcommand].seed_everything
        if seed is False or not 0 <= seed < 2**32:
            raise ValueError(f"seed_everything: takes 0 to {2**32 - 1}")

    def _parse_ckpt_path(self) -> None:
        """Nothing: our checkpoints hold no hyper-parameters, and `read_info` reads them with one
        line for a wrong file.
        """

    def before_instantiate_classes(self) -> None:
        """Set seeds, the run's folder and the precision."""
        # Imported here, because printing a configuration does not need it.
        from transformers.utils.logging import disable_progress_bar

        logging.getLogger("transformers").setLevel(logging.ERROR)
        disable_progress_bar()  # reading weights takes only a moment
        config = self.config[self.command]
        if "verbose" in config:
            config.verbose = False  # replaced by this project's messages
        follow_seed(config, config.seed_everything)
        self.settle_folder(config)
        choose_precision(config)
        # Lightning's hyper-parameters; its own dump would check all values a second time.
        self.config_dump = yaml.safe_load(as_saved(self._parser(self.command), config))
        if self.command == "fit" and (path := config.ckpt_path):
            self.compare(path)

    def compare(self, path: str) -> None:
        """ValueError if this is not the run that wrote the checkpoint; tell what else
        has changed.
        """
        info, folder = read_info(path), run_folder(path)
        if not info.resumable:
            raise ValueError(
                f"ckpt_path: {path} holds weights alone: --backbone.checkpoint takes it"
            )
        self.save_config_kwargs["comments"] = comments = changes(
            self.config_dump, folder, info.step
        )
        rank_zero_info("\n".join(comments))

    def settle_folder(self, config: Any) -> None:
        """Choose a new folder, or the latest run that can resume."""
        run, wanted = Run(**vars(config.run)), config.ckpt_path
        if wanted not in ("last", "auto"):
            run.refuse_taken()
        elif (last := run.last_checkpoint()) is not None:
            config.ckpt_path, config.run.version = str(last), last.parent.parent.name
            # From here on no other process changes its last checkpoint.
            self.folder_lock = Run(**vars(config.run)).lock(wait=LET_GO_S)
            self.resumed_step = read_info(str(last)).step
        elif wanted == "last" or self.command != "fit":
            where = run.home / (run.version or "*")
            raise ValueError(f"--ckpt_path {wanted}: no checkpoint under {where}; start without it")
        else:  # a folder without a checkpoint is restarted
            config.ckpt_path, self.resumed_step = None, 0

    def after_fit(self) -> None:
        """Report the run's folder, and the metric that best.ckpt was chosen by."""
        if folder := self._written():
            scores = best_score(self.trainer).items()
            chosen = "".join(
                f"; best.ckpt: {key.partition('/')[2]} {score:.4g}" for key, score in scores
            )
            print(f"run: {folder}, {self.trainer.global_step} steps{chosen}", flush=True)

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
        """Build model, data and trainer. ValueError in one line if a constructor rejects an option,
        or the checkpoint is of another model.
        """
        try:
            super().instantiate_classes()
        except ValueError as error:
            raise ValueError(shortened(str(error))) from error
        config = self.config[self.command]
        if path := config.ckpt_path:
            model: FineTuning = self.model
            read_info(path).require(
                architecture=config.backbone.architecture, heads=model.model.heads
            )
            if self.command == "fit":
                refuse_other_data(self.datamodule.fingerprints(), run_folder(path))

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        """Add the run's loggers to the user's, atomic checkpoints, and this project's `fsdp`."""
        config, configured = self.config[self.command], self.config_init[self.command].trainer
        run = Run(**vars(config.run))
        loggers = [logger for logger in _listed(configured.logger) if isinstance(logger, Logger)]
        kwargs["logger"] = [*run.loggers(self.resumed_step), *loggers]
        kwargs["plugins"] = [*_listed(configured.plugins), AtomicCheckpointIO()]
        if config.trainer.strategy == "fsdp":
            from interventune.training.strategies import (
                FullyShardedStrategy,  # takes half a second, needed only here
            )

            kwargs["strategy"] = FullyShardedStrategy()
            kwargs["inference_mode"] = False  # inference tensors cannot be part of a graph later
        callbacks = _listed(configured.callbacks)
        if config.trainer.enable_progress_bar is not False:
            # Each refresh shows a loss, for which a GPU must synchronise: as often as curves are
            # written.
            bar = TQDMProgressBar(refresh_rate=config.trainer.log_every_n_steps or 10)
            callbacks += [bar] * all(
                not isinstance(callback, ProgressBar) for callback in callbacks
            )
        seed = BatchSeed(config.seed_everything)
        kwargs["callbacks"] = [*callbacks, FiniteLoss(), Watched(), seed]
        trainer = super().instantiate_trainer(**kwargs)
        # After ModelCheckpoint, so that last.ckpt includes its choice.
        trainer.callbacks.append(
            LastCheckpoint(
                every_n_steps=run.save_every_n_steps, every_minutes=run.save_every_minutes
            )
        )
        return trainer


def choose_precision(config: Any) -> None:
    """Replace `auto` by the run's earlier precision, or the faster one. With adapters, `bf16-true`
    rounds only the frozen weights: trained weights would lose most steps of a small learning rate
    to rounding.
    """
    backbone, precision = config.backbone, str(config.trainer.precision)
    if precision == "auto":
        environment = run_folder(path) / "environment.json" if (path := config.ckpt_path) else None
        before = load_json(environment) if environment and environment.exists() else {}
        precision = config.trainer.precision = before.get("precision") or faster_precision()
    if not backbone.lora_rank:
        if backbone.frozen_weights != "float32":
            raise ValueError(
                "backbone.frozen_weights: no weights are frozen; set backbone.lora_rank, 8 say"
            )
        return
    if precision == "16-true":
        raise ValueError(
            "trainer.precision: 16-true rounds adapters to 16 bits; take bf16-true or 16-mixed"
        )
    if precision == "bf16-true":
        config.trainer.precision = "32-true"
        for part in (backbone, config.model.init_args.backbone):
            part.frozen_weights = "bfloat16"


def follow_seed(config: Any, seed: int) -> None:
    """Set every seed of model and data that is null to the run's, in place."""
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
    """Return the arguments; a number of steps among them overrides the number of epochs in a file.

    >>> all_steps(["fit", "--trainer.max_steps=300"])
    ['fit', '--trainer.max_steps=300', '--trainer.max_epochs=-1']
    """
    # The parsed configuration does not say whether a number of epochs comes from a file.
    words = " ".join(arguments)
    alone = re.search(r" --trainer\.max_steps[= ]\d", words) and "--trainer.max_epochs" not in words
    return [*arguments, "--trainer.max_epochs=-1"] if alone else arguments


NOISE = re.compile(
    "does not have many workers|pin_memory|across ranks is zero|smaller than the logging interval"
    "|Experiment logs directory"  # handled by keep_curves
    "|args parameter is intended to run from within Python|`isinstance.treespec, LeafSpec.` is "
    "deprecated"
    "|recommended to use .self.log.*sync_dist"  # metrics are summed
    "|`weights_only` was not set|litlogger"
)
"""Messages of Lightning that do not help users."""


def quiet() -> None:
    """Silence log messages and warnings that the user does not need."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    warnings.filterwarnings("ignore", f".*({NOISE.pattern})")
    for name in ("trainer.connectors.checkpoint_connector", "utilities.rank_zero"):
        logger = logging.getLogger(f"pytorch_lightning.{name}")
        logger.addFilter(lambda record: not NOISE.search(record.getMessage()))
