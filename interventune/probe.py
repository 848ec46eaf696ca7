"""Group bias, answers, abstention and embedding shift of a model during training, in any trainer.

    probe = TransformersProbe("stories:heldout", "squad_dev.json", limit=200,
                              score={"val/qa/f1": 1.0, "val/bias/ethical/mu": -0.5})
    probe.attach(transformers.Trainer(model, arguments, ...))    # and TRL's trainers

Every number has its paired change since the start of the training; `evaluate` gives the same
numbers.
"""

import copy
import json
import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any, get_args

import pandas as pd
import pytorch_lightning as pl
import torch
from pydantic import FiniteFloat
from torch.distributed.fsdp import FullyShardedDataParallel
from transformers import PreTrainedModel, Trainer, TrainerCallback, TrainerState
from transformers.trainer import TRAINER_STATE_NAME

from .data_modules.batching.data_module import process_rank
from .data_modules.encoding.tokenizers import load_tokenizer
from .data_modules.sources import held_by
from .evaluation.answering.interface import Asking, named_sources
from .evaluation.answering.lending import lent
from .evaluation.answering.work import Processes, current
from .probe_sources import NOW, START, Groups, Measure, Questions, Snapshot
from .storage.command_line import CountOrZero
from .storage.documents import DataError, atomic, check, read_archive
from .storage.finished_work import work_key
from .training.strategies import whole

log = logging.getLogger(__name__)

VALUES = ("value", "low", "high", "n")
CHANGES = ("change", "change_low", "change_high")


class Probe:
    """Measure a model while any loop trains it: `probe.ask(model, tokenizer)`.

    Args:
        sources: groups or questions, recognised by their content: files, `hub:NAME:SPLIT`,
            `stories:SPLIT`; with several sources of a kind, `NAME=SOURCE` puts later ones under
            `val/bias/NAME/...`.
        measures: bias (of groups), qa (F1, exact match, unknown), abstention (in the original
            stories and those without their evidence; includes qa), shift (of embeddings: from the
            original to the story without its evidence, and of originals since the start); default:
            all that the sources allow.
        limit: the first N questions of a source, or N groups of each class; 0 for all.
        score: a weight for each key; the weighted sum is `val/score`.
        asking: fields of `Asking`, such as batch_size or max_new_tokens.

    Keys: val/bias/CLASS/{mu, mu_chance, mean_abs_c, mass}; val/qa/{f1, em, unknown};
    val/abstention/{f1, recall, precision, over_abstention, answered_f1, grounded_f1, reliability,
    selective_f1}, about deleted evidence or, if a source has some, its unanswerable questions, then
    also SQuAD 2's exact, {HasAns, NoAns}_{exact, f1}; val/shift/{cls, tokens}/ts_r/mean, the cosine
    with the original story (HotpotQA: os_r), and start/{mean, cka}, with the model at the start;
    KEY/{change, change_low, change_high}, the paired change since then; val/score. A span head says
    unknown by choosing the classification token.

    Raises:
        ValueError: an unknown measure, or one that no source allows; a source of neither kind.
    """

    tokenizer: Any = None
    table: pd.DataFrame
    """The latest probe, one row per key: value, low, high, n, and the paired change since the start
    with its interval.
    """

    def __init__(
        self,
        source: str,
        *sources: str,
        measures: Sequence[Measure] | None = None,
        limit: int = 0,
        score: Mapping[str, float] | None = None,
        **asking: Any,
    ) -> None:
        limit = check(limit, CountOrZero, "limit")
        chosen = {*check([*(measures or get_args(Measure))], list[Measure], "measures")}
        self.sources = list[Groups | Questions]()
        offered = set[Measure]()
        for name, path in named_sources((source, *sources), "sources").items():
            kind: Any = Groups if held_by(path) == "groups" else Questions
            offered |= kind.gives
            if chosen & kind.gives:
                later = any(isinstance(other, kind) for other in self.sources)
                self.sources.append(kind(f"{name}/" if later else "", path, limit, measures))
        if measures and (lacking := sorted(chosen - offered)):
            needed = "groups" if lacking[0] == "bias" else "questions about texts"
            raise DataError(f"measures: {lacking[0]} needs a source with {needed}")
        self.score = check(dict(score or {}), dict[str, FiniteFloat], "score")
        self.asking = Asking(**asking)
        self.start = list[Snapshot]()
        content = [part.content for part in self.sources]
        self.key = "probe_" + work_key(asked=repr((sorted(chosen), content)))
        """What is asked, by which a checkpoint's start is found again."""

    def ask(self, model: Any, tokenizer: Any = None) -> dict[str, float]:
        """Probe the model, which is left unchanged. Return every key with its value, and its paired
        change since the start as KEY/change, KEY/change_low and KEY/change_high; NaN where
        undefined. The first call is the start; a new Probe starts again.

        Args:
            model: a transformers model, causal or with span answers, or a wrapper around one: DDP,
                a peft adapter, weights sharded by FSDP2. All processes of torch.distributed must
                call this together; they share the questions and all get all numbers.
            tokenizer: the model's tokenizer; default: that of the folder or Hub name that the model
                was loaded from.

        Raises:
            ValueError: the model cannot be probed, or no measure gives a key of `score`.
        """
        live = inner_model(model)
        tokenizer = tokenizer or live.name_or_path
        if not self.start or tokenizer != self.tokenizer:
            self.tokenizer = tokenizer
            self.sets = dict[Any, Any]()
            # A copy, to which a padding token is added if it has none.
            named = isinstance(tokenizer, str)
            self.copied = load_tokenizer(tokenizer) if named else copy.deepcopy(tokenizer)
        plain = torch.autocast(live.device.type, enabled=False)
        with together(model), plain, lent(live, self.copied, self.asking) as answerer:
            answerer.sets = self.sets
            pairs = zip_longest(self.sources, self.start)
            now = [source.ask(answerer, start) for source, start in pairs]
        self.start = self.start or now
        rows = defaultdict[str, dict[str, float]](dict)
        for source, first, last in zip(self.sources, self.start, now, strict=True):
            for key, (_, place, estimate, _) in source.numbers({START: first, NOW: last}):
                if place["checkpoint"] == NOW:
                    columns = CHANGES if place.get("against") else VALUES
                    rows[key] |= zip(columns, estimate, strict=False)  # a change has no n
        keys = pd.Index(rows, name="key")
        self.table = pd.DataFrame(rows.values(), keys, [*VALUES, *CHANGES])
        values: dict[str, float] = self.table["value"].to_dict()
        for column in CHANGES:
            values |= self.table[column].add_suffix(f"/{column}").to_dict()
        if self.score:
            if missing := [key for key in self.score if key not in values]:
                there = ", ".join(self.table.index)
                raise DataError(f"score: no measure gives {missing[0]!r}; there are {there}")
            values["val/score"] = sum(weight * values[key] for key, weight in self.score.items())
        return values

    def begin(self, resumed: object, stored: list[Snapshot]) -> None:
        """Begin a training. Its start is the next probe or, if it is resumed, what the checkpoint
        has stored.
        """
        if resumed and not any(stored):
            log.warning(
                "the checkpoint has no start of this probe: changes since the start are undefined"
            )
            stored = [{} for _ in self.sources]
        self.start = stored if resumed else []


def inner_model(model: Any) -> Any:
    """Return the transformers model inside a trainer's model."""
    if any(hasattr(weight, "ds_id") for weight in model.parameters()):
        raise DataError("a probe cannot gather weights that DeepSpeed shares out; use FSDP2")
    for part in model.modules():
        if isinstance(part, FullyShardedDataParallel):
            raise DataError("a probe cannot gather the weights of FSDP1; use fsdp_version: 2")
        adapters = getattr(part, "peft_config", {}).values()
        if any(adapter.is_prompt_learning for adapter in adapters):
            raise DataError("a probe cannot ask an adapter that learns prompts; use LoRA")
        if isinstance(part, PreTrainedModel):
            return part
    raise DataError(f"a probe finds no model of transformers in {type(model).__name__}")


@contextmanager
def together(model: Any) -> Iterator[None]:
    """Within this context, all processes of torch.distributed share the questions and hold all
    weights.
    """
    token = current.set(Processes(*process_rank()))
    try:
        with whole(model), torch.compiler.set_stance("force_eager"):
            yield  # compiling for every shape would use up the training's limit
    finally:
        current.reset(token)


class TransformersProbe(Probe, TrainerCallback):
    """A probe before training and at every evaluation of transformers' Trainer and its subclasses,
    such as TRL's; arguments as for `Probe`.

    The numbers are added to the metrics of the evaluation as `eval_val/...`, where
    `metric_for_best_model=KEY` finds them, and are sent to the loggers of the trainer that the
    probe is attached to. Checkpoints keep the start.
    """

    trainer: Trainer | None = None
    training = False
    step = -1
    latest: dict[str, float]

    def attach(self, trainer: Trainer) -> None:
        """Become a callback of the trainer, and log through it, as transformers passes no trainer
        to callbacks. In `Trainer(callbacks=[probe])` alone, the numbers are not logged.
        """
        self.trainer = trainer
        trainer.add_callback(self)

    def probe(
        self, state: Any, model: Any, processing_class: Any = None, **_: Any
    ) -> dict[str, float]:
        """Probe and log, unless these weights were already probed."""
        if not self.training or self.step != state.global_step:
            values = self.ask(model, processing_class)
            self.latest = {f"eval_{key}": value for key, value in values.items()}
            self.step = state.global_step
            if self.trainer:
                self.trainer.log(dict(self.latest))
        return self.latest

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Probe the start, which later probes are compared with."""
        self.training = True
        self.step = -1
        folder = Path(args.resume_from_checkpoint or self.checkpoint(args, state))
        stored = list[Snapshot]()
        # The folder may hold another run's checkpoint of the same step, with another history.
        if (folder / self.key).is_file():
            logged = TrainerState.load_from_json(str(folder / TRAINER_STATE_NAME)).log_history
            ours = state.log_history[: len(logged)]
            if logged and json.dumps(logged) == json.dumps(ours):  # equal NaN, too
                stored = read_archive(folder / self.key)
        self.begin(state.global_step, stored)
        self.probe(state, **kwargs)

    def checkpoint(self, args: Any, state: Any) -> Path:
        """Return the folder of the checkpoint of this step."""
        return Path(args.output_dir, f"checkpoint-{state.global_step}")

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Keep the start in the checkpoint's folder; a search of hyperparameters has others."""
        folder = self.checkpoint(args, state)
        if args.should_save and folder.is_dir() and not state.is_hyper_param_search:
            with atomic(folder / self.key) as path:
                torch.save(self.start, path)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Probe once per training step, however many data sets are evaluated."""
        kwargs["metrics"].update(self.probe(state, **kwargs))

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """After training, the weights may change without a new step: probe every time."""
        self.training = False


class LightningProbe(Probe, pl.Callback):
    """A probe before training and after every validation of any LightningModule; the first
    transformers model inside the module is probed. Arguments as for `Probe`. The tokenizer is the
    attribute `tokenizer` of the module or of its data, else that of the model's name.

    The module logs the numbers, so `ModelCheckpoint(monitor="val/score")` finds them.
    """

    def probe(self, trainer: pl.Trainer, module: pl.LightningModule) -> dict[str, float]:
        """Probe the module's model."""
        data = getattr(trainer, "datamodule", None)
        tokenizer = getattr(module, "tokenizer", getattr(data, "tokenizer", None))
        return self.ask(module, tokenizer)

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Keep the start in the checkpoint."""
        checkpoint[self.key] = self.start

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Take the start of the training that is resumed."""
        self.start = checkpoint.get(self.key, [])

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Probe the start, which later probes are compared with."""
        self.begin(trainer.ckpt_path, self.start)
        values = self.probe(trainer, pl_module)
        for logger in trainer.loggers:
            logger.log_metrics(values, step=trainer.global_step)

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not trainer.sanity_checking:
            pl_module.log_dict(self.probe(trainer, pl_module))
