"""Lightning's commands, on a run's folder: fit, validate, test, predict.

    interventune train fit -c configs/experiments/squad.yaml -c configs/backbones/bert_base.yaml \\
        --data.train_qa=train.json --data.val_qa.main=dev.json
"""

import json
import logging
import os
import re
import warnings
from collections.abc import Sequence
from typing import Any

import yaml
from filelock import FileLock
from jsonargparse import ArgumentParser, Namespace
from pytorch_lightning import seed_everything
from pytorch_lightning.callbacks import ProgressBar, TQDMProgressBar
from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities import rank_zero_info
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from interventune.models.loading import read_info
from interventune.storage.documents import load_json

from .callbacks.last_checkpoint import AtomicCheckpointIO, LastCheckpoint
from .callbacks.run_record import (
    RunRecord,
    as_saved,
    best_score,
    changes,
    refuse_other_data,
    run_folder,
)
from .configs import checked_configs, shortened
from .parser import parsed
from .precision import Trainer, faster_precision
from .run import LET_GO_S, Run


def main(args: Sequence[str]) -> Trainer:
    """Parse `args` and run the command; return its trainer."""
    quiet()
    command, *flags = all_steps(checked_configs(args))
    parser, config = parsed(command, flags)
    resumed_step, _folder_lock = settle_folder(command, config)
    if command != "fit" and config.ckpt_path:
        parser, config = parsed(command, [*flags, *as_trained(config)])
    try:
        return run(command, parser, config, resumed_step)
    except MisconfigurationException as error:
        raise ValueError(str(error)) from error


def run(
    command: str, parser: ArgumentParser, config: Namespace, resumed_step: int | None
) -> Trainer:
    """Set seeds, the run's folder and the precision, build everything, run the command, and say
    where its results are. ValueError in one line if a constructor rejects an option, or the
    checkpoint is of another model or run.
    """
    # Imported here, because printing a configuration does not need it.
    from transformers.utils.logging import disable_progress_bar

    logging.getLogger("transformers").setLevel(logging.ERROR)
    disable_progress_bar()  # reading weights takes only a moment
    follow_seed(config)
    seed_everything(config.seed_everything, workers=True)
    choose_precision(config)
    record = record_of(command, config, as_saved(parser, config))
    try:
        parts = parser.instantiate_classes(config)
    except ValueError as error:
        raise ValueError(shortened(str(error))) from error
    parts.model.run_seed = config.seed_everything
    trainer = build_trainer(parts, record, resumed_step)
    if command == "fit":
        refuse_wrong_best(parts.checkpoint)
    if path := config.ckpt_path:
        heads = parts.model.model.heads
        read_info(path).require(architecture=config.backbone.architecture, heads=heads)
        if command == "fit":
            refuse_other_data(run_folder(path))
    # Lightning would print tables of its own.
    quietly = {"verbose": False} if command in ("validate", "test") else {}
    getattr(trainer, command)(
        parts.model, datamodule=parts.data, ckpt_path=path, weights_only=True, **quietly
    )
    if trainer.is_global_zero and not trainer.fast_dev_run:
        say_results(command, trainer)
    return trainer


def settle_folder(command: str, config: Namespace) -> tuple[int | None, FileLock | None]:
    """Choose a new folder, or the latest run that can resume, whose last checkpoint no other
    process changes while the returned lock lives. Return the step, too, from which `--ckpt_path
    last` or `auto` resumes: 0 in a folder without a checkpoint. Other commands than `fit` only read
    the checkpoint, and get a new folder.
    """
    run = Run(**vars(config.run))
    path = config.ckpt_path
    if path not in ("last", "auto"):
        run.refuse_taken()
        return None, None
    last = run.last_checkpoint()
    if last is not None:
        config.ckpt_path = str(last)
        if command != "fit":
            config.run.version = ""
            return None, None
        config.run.version = str(last.parent.parent.relative_to(run.home))
        lock = Run(**vars(config.run)).lock(wait=LET_GO_S)
        step = read_info(str(last)).step
        rank_zero_info(f"resuming {last.parent.parent} at step {step}")
        return step, lock
    where = run.home / (run.version or "*")
    if path == "last" or command != "fit":
        raise ValueError(f"--ckpt_path {path}: no checkpoint under {where}; start without it")
    rank_zero_info(f"--ckpt_path auto: no checkpoint under {where}: training starts")
    config.ckpt_path = None  # a folder without a checkpoint is restarted
    return 0, None


def as_trained(config: Namespace) -> list[str]:
    """Return the flags with which a command measures `ckpt_path` as it was trained: its model,
    tokenizer and encoding.
    """
    info = read_info(config.ckpt_path)
    encoding = info.encoding
    if config.data.class_path.endswith("ChoicesDataModule") and "prompts" in encoding:  # a decoder
        encoding = {"max_length": encoding["max_length"], "chat": encoding["prompts"]["chat"]}
    return [
        f"--ckpt_path={config.ckpt_path}",
        f"--run.version={config.run.version}",
        f"--backbone.checkpoint={config.ckpt_path}",
        "--backbone.tokenizer=",
        "--backbone.config={}",
        f"--backbone.lora_rank={info.adapter.get('rank', 0)}",
        f"--data.encoding={json.dumps(encoding)}",
    ]


def record_of(command: str, config: Namespace, text: str) -> RunRecord:
    """Return the writer of the configuration's text, and of what has changed since the checkpoint.
    ValueError if this is not the run that wrote it.
    """
    path = config.ckpt_path
    comments = list[str]()
    if command == "fit" and path:
        info = read_info(path)
        if not info.resumable:
            raise ValueError(
                f"ckpt_path: {path} holds weights alone: --backbone.checkpoint takes it"
            )
        comments = changes(yaml.safe_load(text), run_folder(path), info.step)
        for comment in comments:
            rank_zero_info(comment)
    return RunRecord("\n".join([*comments, text]), resumed=command == "fit" and bool(path))


def build_trainer(parts: Namespace, record: RunRecord, resumed_step: int | None) -> Trainer:
    """Add the run's loggers and callbacks to the user's, atomic checkpoints, and this project's
    `fsdp`.
    """
    run: Run = parts.run
    options = vars(parts.trainer)
    if options["overfit_batches"]:
        raise ValueError("trainer.overfit_batches: set data.limit_train_... instead")
    loggers = [logger for logger in _listed(options["logger"]) if isinstance(logger, Logger)]
    options["logger"] = [*run.loggers(resumed_step), *loggers]
    options["plugins"] = [*_listed(options["plugins"]), AtomicCheckpointIO()]
    if options["strategy"] == "fsdp":
        # Takes half a second, needed only here.
        from .strategies import FullyShardedStrategy

        options["strategy"] = FullyShardedStrategy()
        options["inference_mode"] = False  # inference tensors cannot be part of a graph later
    callbacks = _listed(options["callbacks"])
    has_bar = any(isinstance(callback, ProgressBar) for callback in callbacks)
    if options["enable_progress_bar"] is not False and not has_bar:
        # Each refresh shows a loss, for which a GPU must synchronise: as often as curves are
        # written.
        callbacks.append(TQDMProgressBar(refresh_rate=options["log_every_n_steps"] or 10))
    # Last, so that last.ckpt includes the choice of ModelCheckpoint.
    options["callbacks"] = [*callbacks, parts.checkpoint, record, LastCheckpoint(run)]
    return Trainer(**options)


def refuse_wrong_best(checkpoint: Any) -> None:
    """ValueError if best.ckpt would be saved with the score of other weights."""
    steps = checkpoint._every_n_train_steps
    timed = checkpoint._train_time_interval is not None
    if (steps or timed) and (checkpoint.monitor or "").startswith("val/"):
        raise ValueError(
            f"checkpoint: {checkpoint.monitor} is known after validations only; set "
            "checkpoint.monitor=null, or trainer.val_check_interval=STEPS instead"
        )
    if checkpoint.save_top_k != 1 and "{" not in checkpoint.filename:
        raise ValueError(
            "checkpoint.save_top_k: not 1 needs a name for each, as checkpoint.filename={step}"
        )


def say_results(command: str, trainer: Trainer) -> None:
    """Print where the results are, and the numbers of a validation or test."""
    folder = trainer.loggers[0].log_dir
    if command == "fit":
        chosen = "".join(
            f"; best.ckpt: {key.partition('/')[2]} {score:.4g}"
            for key, score in best_score(trainer).items()
        )
        print(f"run: {folder}, {trainer.global_step} steps{chosen}", flush=True)
    elif command == "predict":
        print(f"written to {folder}/predictions", flush=True)
    else:
        for name, value in trainer.callback_metrics.items():
            print(f"{name} {float(value):.4g}")
        print(f"written to {folder}/metrics.json", flush=True)


def choose_precision(config: Namespace) -> None:
    """Replace `auto` by the run's earlier precision, or the faster one. With adapters, `bf16-true`
    rounds only the frozen weights: trained weights would lose most steps of a small learning rate
    to rounding.
    """
    backbone = config.backbone
    precision = str(config.trainer.precision)
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


def follow_seed(config: Namespace) -> None:
    """Set every seed of model and data that is null to the run's, in place."""
    for part in (config.model, config.data):
        for key, value in part.init_args.items():
            if key.endswith("seed") and value is None:
                part.init_args[key] = config.seed_everything


def _listed(value: Any) -> list[Any]:
    values = value if isinstance(value, list) else [value]
    return [value for value in values if value is not None]


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
    "|`isinstance.treespec, LeafSpec.` is deprecated"
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
