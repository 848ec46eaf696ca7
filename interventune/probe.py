"""Group bias, answers, abstention and embedding shift of a model during training, in any trainer.

    probe = TransformersProbe("stories:heldout", "squad_dev.json", limit=200,
                              score={"val/qa/f1": 1.0, "val/bias/ethical/mu": -0.5})
    transformers.Trainer(model, arguments, callbacks=[probe], ...)    # and TRL's trainers

Later probes report the paired change since the first for every number; `evaluate` gives the same numbers.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, cast, get_args

import pandas as pd
import pytorch_lightning as pl
import torch
import torch.distributed as dist
from pandas import DataFrame
from torch.distributed.fsdp import FullyShardedDataParallel
from transformers import PreTrainedModel, Trainer, TrainerCallback

from data_modules.encoding.tokenizers import load_tokenizer
from data_modules.schema.groups import ADVICE_CLASSES
from data_modules.schema.questions import DELETED
from data_modules.sources import held_by
from evaluation.answering.asking import Asking, named_sources
from evaluation.answering.checkpoint import QuestionCheckpoint, lent
from evaluation.answering.processes import Processes, current
from evaluation.protocols.bias.asked import read_sets
from evaluation.protocols.bias.command import BIAS
from evaluation.protocols.bias.groups import with_scores
from evaluation.protocols.bias.measures import add_estimates, compared
from evaluation.protocols.faithfulness.abstention import ABSTENTION, counted_rows
from evaluation.protocols.faithfulness.command import FAITHFULNESS, scores
from evaluation.protocols.shift import SHIFT, between, measured
from evaluation.results import Results
from evaluation.variants import VariantOptions, read_stories
from storage.errors import DataError
from training.strategies import whole

Measure = Literal["bias", "qa", "abstention", "shift"]
Kept = dict[str, Any]
BIAS_FIELDS = ("mu_K", "mean_abs_c_K", "mass_K")
QA = replace(
    FAITHFULNESS, cells=[("variant",)], measures={"f1": "F1", "em": "EM", "unknown": "unknown"}, failures=""
)
COSINES = replace(SHIFT, cells=SHIFT.cells[:1], measures={"cosine": SHIFT.measures["cosine"]})
EMBEDDINGS = {"cls": "cls", "common": "tokens"}
"""Names of the embeddings of `shift` in keys."""
START, NOW = "start", "now"

COLUMNS = ("value", "low", "high", "n", "change", "change_low", "change_high")


class Groups:
    """A source of groups."""

    gives: tuple[Measure, ...] = ("bias",)

    def __init__(self, source: str, limit: int) -> None:
        sets, self.frame = read_sets({"": source}, limit)
        self.groups = sets[""]

    def ask(self, model: QuestionCheckpoint, measures: Collection[Measure]) -> Kept:
        """Return what later probes are compared with: the groups with their scores."""
        scored = with_scores(self.frame, model.subject_scores(self.groups, "probing bias"))
        return {"bias": scored.assign(unit=scored["key"])}

    def tables(self, start: Kept, now: Kept) -> Iterator[tuple[str, DataFrame]]:
        """Yield long tables, each with the pattern of its rows' keys."""
        results = Results(BIAS.by, BIAS.units)
        for advice in ADVICE_CLASSES:
            sides = ((name, kept["bias"]) for name, kept in ((START, start), (NOW, now)))
            parts = {name: frame[frame["class"] == advice] for name, frame in sides}
            add_estimates(results, compared(parts, {"class": advice}), BIAS_FIELDS)
        yield "bias/{class}/{measure}", results.frame


class Questions:
    """A source of questions about stories, evaluated on the original and without the evidence."""

    gives: tuple[Measure, ...] = ("qa", "abstention", "shift")

    def __init__(self, source: str, limit: int) -> None:
        stories = read_stories(VariantOptions([source], limit=limit))
        if not stories.originals:
            raise DataError(f"{source}: holds no original stories, which variants are compared with")
        self.originals = [replace(one, kept=((0, len(one.context)),)) for one in stories.originals]
        self.sets = {name: rows for name, rows in stories.examples.items() if name in {"os", *DELETED}}
        self.states = list[torch.Tensor]()
        """Hidden states of the originals in the first probe."""

    def ask(self, model: QuestionCheckpoint, measures: Collection[Measure]) -> Kept:
        """Return what later probes are compared with: rows of answers and stories, CKA by embedding."""
        found: Kept = {"qa": [], "shift": [], "cka": {}}
        asked = {name: rows for name, rows in self.sets.items() if name == "os" or "abstention" in measures}
        if {"qa", "abstention"} & {*measures}:
            model.may_abstain = any(one.answer_type == "unknown" for rows in asked.values() for one in rows)
            for variant, examples in asked.items():
                for answer in sorted(model.answers(examples, f"probing {variant}")):
                    one = examples[answer.example]
                    row = {"variant": variant, "id": one.id, "unanswerable": one.answer_type == "unknown"}
                    found["qa"].append(row | scores(one, answer.text, None))
        if "shift" in measures:
            original = {one.id: one for one in self.originals}
            for variant in [name for name in self.sets if name != "os"]:
                pairs = [(original[one.id], one) for one in self.sets[variant] if one.id in original]
                for story in measured(model, pairs, model, [-1], f"probing {variant}"):
                    found["shift"] += [{"variant": variant, **row} for row, _ in story]
            first = cast(QuestionCheckpoint, First(model, self.states))
            rows, found["cka"] = between(first, model, self.originals, [-1], "probing since the start")
            found["shift"] += [{"variant": START, **row} for row in rows]
        return found

    def tables(self, start: Kept, now: Kept) -> Iterator[tuple[str, DataFrame]]:
        """Yield long tables, each with the pattern of its rows' keys."""

        def rows(kind: str) -> list[Kept]:
            sides = ((START, start), (NOW, now))
            return [{"checkpoint": name, **row} for name, side in sides for row in side[kind]]

        if now["qa"]:
            originals = [row for row in rows("qa") if row["variant"] == "os"]
            yield "qa/{measure}", QA.results(originals, [START, NOW]).frame
        if counted := [*counted_rows(rows("qa"))]:
            frame = ABSTENTION.results(counted, [START, NOW]).frame
            cells = [*dict.fromkeys(frame["variant"])]
            names = dict(zip(cells, ["", *(f"{cell}/" for cell in cells[1:])], strict=False))
            frame["measure"] = frame["measure"].str.removeprefix("abstention_")
            yield "abstention/{variant}{measure}", frame.replace({"variant": names})
        if now["shift"]:
            frame = COSINES.results(rows("shift"), [START, NOW]).frame
            yield "shift/{embedding}/{variant}/mean", frame.replace({"embedding": EMBEDDINGS})
            results = Results(SHIFT.by, SHIFT.units)
            for embedding, (value,) in now["cka"].items():
                place: Kept = {"checkpoint": NOW, "embedding": EMBEDDINGS[embedding], "variant": START}
                results.add("cka", value, n=len(self.originals), **place)
            yield "shift/{embedding}/{variant}/{measure}", results.frame


class First:
    """The model of the first probe, as `between` uses it: the first probe stores the last layer's states on
    the CPU batch by batch, and later probes replay them in the same order."""

    def __init__(self, model: QuestionCheckpoint, states: list[torch.Tensor]) -> None:
        self.asked, self.model, self.states, self.again = model, model.model, states, iter([*states])

    def hidden_states(self, inputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor]:
        """Return the states of the last layer alone, (B, T, D)."""
        if (kept := next(self.again, None)) is not None:
            return (kept.to(self.asked.device),)
        state_BTD = self.asked.hidden_states(inputs)[-1]
        self.states.append(state_BTD.cpu())
        return (state_BTD,)


class Probe:
    """Measure a model while any loop trains it: `probe.ask(model, tokenizer)`.

    Args:
        sources: groups or questions, recognised by their content: files, `hub:NAME:SPLIT`, `stories:SPLIT`;
            with several sources of a kind, `NAME=SOURCE` puts later ones under `val/bias/NAME/...`.
        measures: bias (of groups), qa (F1, exact match, unknown), abstention (in the original stories and
            those without their evidence; includes qa), shift (of embeddings: from the original to the story
            without its evidence, and of originals since the start); default: all that the sources allow.
        limit: the first N questions of a source, or N groups of each class; 0 for all.
        score: a weight for each key; the weighted sum is `val/score`.
        tokenizer: a transformers tokenizer, its folder or Hub name, if the trainer has none.
        asking: fields of `Asking`, such as batch_size or max_new_tokens.

    Keys: val/bias/CLASS/{mu, mean_abs_c, mass}; val/qa/{f1, em, unknown}; val/abstention/{f1, recall,
    precision, over_abstention, answered_f1, grounded_f1, reliability, selective_f1}, about deleted evidence
    or, if a source has some, its unanswerable questions; val/shift/{cls, tokens}/ts_r/mean, the cosine with
    the original story (HotpotQA: os_r), and start/{mean, cka}, with the model at the start; KEY/{change,
    change_low, change_high}, the paired change since then; val/score. A span head says unknown by choosing
    the classification token.

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
                raise DataError(f"measures: no {measure!r}; choose from {', '.join(get_args(Measure))}")
        self.sources = list[tuple[str, Groups | Questions]]()
        for name, source in named_sources(sources, "sources").items():
            kind: Any = Groups if held_by(source) == "groups" else Questions
            first = not any(isinstance(other, kind) for _, other in self.sources)
            self.sources.append(("" if first else f"{name}/", kind(source, limit)))
        self.measures = {*(measures or get_args(Measure))}
        given = {measure for _, source in self.sources for measure in source.gives}
        if missing := sorted({*(measures or ())} - given) or ["bias"][: not given]:
            needed = "groups" if missing[0] == "bias" else "questions about texts"
            raise DataError(f"measures: {missing[0]} needs a source with {needed}")
        self.score, self.asking, self.tokenizer = dict(score or {}), Asking(**asking), tokenizer
        self.start, self.sets = list[Kept](), dict[Any, Any]()
        self.table = pd.DataFrame()
        """The latest probe, one row per key: value, low, high, n, and the paired change since the start with
        its interval."""

    def ask(self, model: Any, tokenizer: Any = None) -> dict[str, float]:
        """Probe the model, which is left unchanged. Return every key with its value, and its paired change
        since the first probe as KEY/change, KEY/change_low and KEY/change_high; NaN where undefined.

        Args:
            model: a transformers model, causal or with span answers, or a wrapper around one: DDP, a peft
                adapter, weights sharded by FSDP2. All processes of torch.distributed must call this
                together; they share the questions and all get all numbers.
            tokenizer: the model's tokenizer.

        Raises:
            ValueError: the model cannot be probed, or no measure gives a key of `score`.
        """
        live = self.found(model)
        if isinstance(self.tokenizer, str) or (self.tokenizer or tokenizer) is None:
            self.tokenizer = load_tokenizer(self.tokenizer or live.name_or_path)
        elif not self.start:  # a copy, to which a padding token is added if it has none
            self.tokenizer = copy.deepcopy(self.tokenizer or tokenizer)
        with together(model), lent(live, self.tokenizer, self.asking) as answerer:
            answerer.sets = self.sets
            now = [source.ask(answerer, self.measures & {*source.gives}) for _, source in self.sources]
        self.start = self.start or now
        rows = dict[str, dict[str, float]]()
        for (name, source), *kept in zip(self.sources, self.start, now, strict=True):
            for key, frame in source.tables(*kept):
                for row in frame[frame["checkpoint"] == NOW].to_dict("records"):
                    family, _, rest = key.format(**row).partition("/")
                    cell = rows.setdefault(f"val/{family}/{name}{rest}", dict.fromkeys(COLUMNS, math.nan))
                    if row["against"]:
                        cell |= zip(COLUMNS[4:], (row["value"], row["low"], row["high"]), strict=True)
                    else:
                        cell |= {column: row[column] for column in COLUMNS[:4]}
        found = {f"{key}/{column}": cell[column] for key, cell in rows.items() for column in COLUMNS[4:]}
        found = {key: cell["value"] for key, cell in rows.items()} | found
        if self.score:
            if missing := [key for key in self.score if key not in found]:
                raise DataError(f"score: no measure gives {missing[0]!r}; there are {', '.join(rows)}")
            found["val/score"] = sum(weight * found[key] for key, weight in self.score.items())
        self.table = pd.DataFrame.from_dict(rows, orient="index")
        return found

    def found(self, model: Any) -> Any:
        """Return the transformers model inside the trainer's model."""
        if any(hasattr(weight, "ds_id") for weight in model.parameters()):
            raise DataError("a probe cannot gather weights that DeepSpeed shares out; use FSDP2")
        for part in model.modules():
            if isinstance(part, FullyShardedDataParallel):
                raise DataError("a probe cannot gather the weights of FSDP1; use fsdp_version: 2")
            if any(
                getattr(c, "is_prompt_learning", False) for c in getattr(part, "peft_config", {}).values()
            ):
                raise DataError("a probe cannot ask an adapter that learns prompts; use LoRA")
            if isinstance(part, PreTrainedModel):
                return part
        raise DataError(f"a probe finds no model of transformers in {type(model).__name__}")


@contextmanager
def together(model: Any) -> Iterator[None]:
    """Within this context, all processes of torch.distributed share the questions and hold all weights."""
    several = dist.is_available() and dist.is_initialized()
    group = (dist.get_rank(), dist.get_world_size()) if several else (0, 1)
    token = current.set(Processes(*group))
    try:
        with whole(model):
            yield
    finally:
        current.reset(token)


class TransformersProbe(Probe, TrainerCallback):
    """A probe before training and at every evaluation of transformers' Trainer and its subclasses, such as
    TRL's; arguments as for `Probe`.

    The numbers are added to the metrics of the evaluation as `eval_val/...`, where
    `metric_for_best_model=KEY` finds them, and are sent to the trainer's loggers.
    """

    training, step = False, -1
    latest: dict[str, float]

    def probe(self, state: Any, model: Any, processing_class: Any = None, **_: Any) -> dict[str, float]:
        """Probe and log, unless these weights were already probed."""
        if not self.training or self.step != state.global_step:
            found = self.ask(model, processing_class)
            self.latest, self.step = {f"eval_{key}": value for key, value in found.items()}, state.global_step
            if trainer := calling_trainer():
                trainer.log(dict(self.latest))
        return self.latest

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Probe the start, which later probes are compared with."""
        self.training, self.step = True, -1
        self.probe(state, **kwargs)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Probe once per training step, however many data sets are evaluated."""
        kwargs.get("metrics", {}).update(self.probe(state, **kwargs))

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """After training, the weights may change without a new step: probe every time."""
        self.training = False


def calling_trainer() -> Trainer | None:
    """Return the trainer that called a callback, which transformers does not pass."""
    frame: Any = sys._getframe()
    while frame and not isinstance(frame.f_locals.get("self"), Trainer):
        frame = frame.f_back
    return frame and frame.f_locals["self"]


class LightningProbe(Probe, pl.Callback):
    """A probe before training and after every validation of any LightningModule; the first transformers
    model inside the module is probed. Arguments as for `Probe`. Without a tokenizer, the probe uses the
    attribute `tokenizer` of the module or of its data.

    The module logs the numbers, so `ModelCheckpoint(monitor="val/score")` finds them.
    """

    def probe(self, trainer: pl.Trainer, module: pl.LightningModule) -> dict[str, float]:
        """Probe the module's model."""
        data = getattr(trainer, "datamodule", None)
        return self.ask(module, getattr(module, "tokenizer", None) or getattr(data, "tokenizer", None))

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Probe the start, which later probes are compared with."""
        found = self.probe(trainer, pl_module)
        for logger in trainer.loggers:
            logger.log_metrics(found, step=trainer.global_step)

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not trainer.sanity_checking:
            pl_module.log_dict(self.probe(trainer, pl_module))
