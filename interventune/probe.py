"""Group bias, answers, abstention and embedding shift of a model during training, in any trainer.

    probe = TransformersProbe("stories:heldout", "squad_dev.json", limit=200,
                              score={"val/qa/f1": 1.0, "val/bias/ethical/mu": -0.5})
    transformers.Trainer(model, arguments, callbacks=[probe], ...)    # and TRL's trainers

Every number has its paired change since the start of the training; `evaluate` gives the same
numbers.
"""

from __future__ import annotations

import copy
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any, get_args

import pandas as pd
import pytorch_lightning as pl
import torch
from torch.distributed.fsdp import FullyShardedDataParallel
from transformers import PreTrainedModel, Trainer, TrainerCallback

from interventune.data_modules.batching.data_module import process_rank
from interventune.data_modules.encoding.tokenizers import load_tokenizer
from interventune.data_modules.sources import held_by
from interventune.evaluation.answering.asking import Asking, named_sources
from interventune.evaluation.answering.lending import lent
from interventune.evaluation.answering.work import Processes, current
from interventune.probe_sources import NOW, Groups, Kept, Measure, Questions
from interventune.storage.errors import DataError
from interventune.storage.files import atomic, read_archive
from interventune.storage.finished_work import work_key
from interventune.training.strategies import whole

log = logging.getLogger(__name__)

COLUMNS = ["value", "low", "high", "n", "change", "change_low", "change_high"]


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
        tokenizer: a transformers tokenizer, its folder or Hub name, if the trainer has none.
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

    def __init__(
        self,
        *sources: str,
        measures: Sequence[Measure] | None = None,
        limit: int = 0,
        score: Mapping[str, float] | None = None,
        tokenizer: Any = None,
        **asking: Any,
    ) -> None:
        for measure in measures or ():
            if measure not in get_args(Measure):
                raise DataError(
                    f"measures: no {measure!r}; choose from {', '.join(get_args(Measure))}"
                )
        self.measures: set[Measure] = {*(measures or get_args(Measure))}
        self.sources, given = list[tuple[str, Groups | Questions]](), set[Measure]()
        for name, source in named_sources(sources, "sources").items():
            kind: Any = Groups if held_by(source) == "groups" else Questions
            given |= kind.gives
            first = not any(isinstance(other, kind) for _, other in self.sources)
            if self.measures & kind.gives:
                self.sources.append(("" if first else f"{name}/", kind(source, limit, measures)))
        if missing := sorted({*(measures or ())} - given) or ["bias"][: not given]:
            needed = "groups" if missing[0] == "bias" else "questions about texts"
            raise DataError(f"measures: {missing[0]} needs a source with {needed}")
        self.score, self.asking, self.tokenizer = dict(score or {}), Asking(**asking), tokenizer
        self.start, self.given = list[Kept](), None
        asked = [source.asked for _, source in self.sources]
        self.key = "probe_" + work_key(asked=repr((sorted(self.measures), asked)))
        """What is asked, by which a checkpoint's start is found again."""
        self.table = pd.DataFrame()
        """The latest probe, one row per key: value, low, high, n, and the paired change since the
        start with its interval.
        """

    def ask(self, model: Any, tokenizer: Any = None) -> dict[str, float]:
        """Probe the model, which is left unchanged. Return every key with its value, and its paired
        change since the start as KEY/change, KEY/change_low and KEY/change_high; NaN where
        undefined. The first call is the start; a new Probe starts again.

        Args:
            model: a transformers model, causal or with span answers, or a wrapper around one: DDP,
                a peft adapter, weights sharded by FSDP2. All processes of torch.distributed must
                call this together; they share the questions and all get all numbers.
            tokenizer: the model's tokenizer.

        Raises:
            ValueError: the model cannot be probed, or no measure gives a key of `score`.
        """
        live = self.found(model)
        given = self.tokenizer or tokenizer or live.name_or_path
        if not self.start or given != self.given:
            self.given, self.sets = given, dict[Any, Any]()
            # A copy, to which a padding token is added if it has none.
            self.reads = load_tokenizer(given) if isinstance(given, str) else copy.deepcopy(given)
        plain = torch.autocast(live.device.type, enabled=False)
        with together(model), plain, lent(live, self.reads, self.asking) as answerer:
            answerer.sets = self.sets
            now = [
                source.ask(answerer, self.measures & source.gives, start)
                for (_, source), start in zip_longest(self.sources, self.start)
            ]
        self.start = self.start or now
        rows = dict[str, dict[str, float]]()
        for (name, source), *kept in zip(self.sources, self.start, now, strict=True):
            for key, frame in source.tables(*kept):
                for row in frame[frame["checkpoint"] == NOW].to_dict("records"):
                    family, _, rest = key.format(**row).partition("/")
                    cell = rows.setdefault(f"val/{family}/{name}{rest}", {})
                    if row["against"]:
                        cell |= zip(
                            COLUMNS[4:], (row["value"], row["low"], row["high"]), strict=True
                        )
                    else:
                        cell |= {column: row[column] for column in COLUMNS[:4]}
        self.table = pd.DataFrame.from_dict(rows, orient="index").reindex(columns=COLUMNS)
        found: dict[str, float] = self.table["value"].to_dict()
        for column in COLUMNS[4:]:
            found |= self.table[column].add_suffix(f"/{column}").to_dict()
        if self.score:
            if missing := [key for key in self.score if key not in found]:
                raise DataError(
                    f"score: no measure gives {missing[0]!r}; there are {', '.join(rows)}"
                )
            found["val/score"] = sum(weight * found[key] for key, weight in self.score.items())
        return found

    def begin(self, resumed: object, kept: list[Kept]) -> None:
        """Begin a training. Its start is the next probe or, if it is resumed, what the checkpoint
        kept.
        """
        if resumed and not any(kept):
            log.warning(
                "the checkpoint has no start of this probe: changes since the start are undefined"
            )
        self.start = (kept or [{} for _ in self.sources]) if resumed else []

    def found(self, model: Any) -> Any:
        """Return the transformers model inside the trainer's model."""
        if any(hasattr(weight, "ds_id") for weight in model.parameters()):
            raise DataError("a probe cannot gather weights that DeepSpeed shares out; use FSDP2")
        for part in model.modules():
            if isinstance(part, FullyShardedDataParallel):
                raise DataError("a probe cannot gather the weights of FSDP1; use fsdp_version: 2")
            if any(
                getattr(c, "is_prompt_learning", False)
                for c in getattr(part, "peft_config", {}).values()
            ):
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
    `metric_for_best_model=KEY` finds them, and are sent to the trainer's loggers. Checkpoints keep
    the start.
    """

    training, step = False, -1
    latest: dict[str, float]

    def probe(
        self, state: Any, model: Any, processing_class: Any = None, **_: Any
    ) -> dict[str, float]:
        """Probe and log, unless these weights were already probed."""
        if not self.training or self.step != state.global_step:
            found = self.ask(model, processing_class)
            self.latest, self.step = (
                {f"eval_{key}": value for key, value in found.items()},
                state.global_step,
            )
            if caller := calling_trainer():
                caller["self"].log(dict(self.latest))
        return self.latest

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Probe the start, which later probes are compared with."""
        self.training, self.step = True, -1
        path = Path((calling_trainer() or {}).get("resume_from_checkpoint") or "", self.key)
        self.begin(state.global_step, read_archive(path) if path.is_file() else [])
        self.probe(state, **kwargs)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Keep the start in the checkpoint's folder."""
        if args.should_save:
            trainer = calling_trainer()["self"]
            folder = trainer._get_output_dir(trainer._trial)
            with atomic(Path(folder, f"checkpoint-{state.global_step}", self.key)) as path:
                torch.save(self.start, path)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Probe once per training step, however many data sets are evaluated."""
        kwargs.get("metrics", {}).update(self.probe(state, **kwargs))

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """After training, the weights may change without a new step: probe every time."""
        self.training = False


def calling_trainer() -> Any:
    """Return the variables of the trainer's method that called a callback, such as `self`, which
    transformers does not pass; None if none did.
    """
    frame: Any = sys._getframe()
    while frame and not isinstance(frame.f_locals.get("self"), Trainer):
        frame = frame.f_back
    return frame and frame.f_locals


class LightningProbe(Probe, pl.Callback):
    """A probe before training and after every validation of any LightningModule; the first
    transformers model inside the module is probed. Arguments as for `Probe`. Without a tokenizer,
    the probe uses the attribute `tokenizer` of the module or of its data.

    The module logs the numbers, so `ModelCheckpoint(monitor="val/score")` finds them.
    """

    def probe(self, trainer: pl.Trainer, module: pl.LightningModule) -> dict[str, float]:
        """Probe the module's model."""
        data = getattr(trainer, "datamodule", None)
        return self.ask(
            module, getattr(module, "tokenizer", None) or getattr(data, "tokenizer", None)
        )

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Keep the start in the checkpoint."""
        checkpoint[self.key] = self.start

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Take the start of the training that is resumed."""
        self.start = checkpoint.get(self.key, [])

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Probe the start, which later probes are compared with."""
        self.begin(trainer.ckpt_path, self.start)
        found = self.probe(trainer, pl_module)
        for logger in trainer.loggers:
            logger.log_metrics(found, step=trainer.global_step)

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not trainer.sanity_checking:
            pl_module.log_dict(self.probe(trainer, pl_module))
