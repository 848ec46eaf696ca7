"""Validation, test and prediction on the four kinds of evaluation sets, and which checkpoint is the
best.

Metrics are logged as `<stage>/<family>/[<set>/]<metric>`; `checkpoint.monitor` selects one of them.

- qa: em, f1, unknown (in [0, 1]) and n, and the same for each type of answer (`yes/em`) if a set
  has several; `failed`, the number of questions that a decoder did not answer. Predictions are
  compared with the answers to the original story, so in a variant without its rationale `em` is the
  share of old answers, and a faithful model answers `unknown`.
- bias: <class>/{mu,eta,theta,mean_abs_c,mu_normalised,mass,delta,eps,n}, `unknown` (1 - mass) if it
  is a candidate, and `selection` if there are groups of ethical and adversarial advice.
- shift: {cls,tokens}/<variant>/{mean,std} of the last layer (Chaturvedi et al. 2023, section 5.2).
- choices: accuracy, loss, n; the loss is that of training, without weights.

`interventune train predict` writes answers to `predictions/<set>.json` as {id: text}, the format of
SQuAD's official script, in which "" says unknown, so questions that a decoder did not answer are
left out; groups to `predictions/<set>.jsonl` with their scores, which `interventune evaluate bias
--predictions` reads; choices as a list of {id, label, choice, logits}.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.utilities import rank_zero_info, rank_zero_warn
from torch import Tensor
from torchmetrics.utilities.distributed import gather_all_tensors

from interventune.data_modules.batching.data_module import MAIN, EvalSet
from interventune.data_modules.schema.groups import ADVICE_CLASSES, ScoredGroup
from interventune.data_modules.schema.questions import ANSWER_TYPES, traits, write_records
from interventune.metrics.answers import reference_note, score_answer
from interventune.metrics.bias.group_bias import group_measures, group_rows
from interventune.metrics.shift import distance_sums, shift_measures
from interventune.storage.documents import write_text

Scalars = Iterator[tuple[str, float]]
Predictions = dict[int, Any]
"""By index in the set."""
IN_PROGRESS_BAR = ("f1", "accuracy")


class Family:
    """An evaluation set, whose metrics and predictions are computed from outputs of `module`.

    Shape letters: N examples, C numbers of an example.
    """

    columns: int
    """C."""

    def __init__(self, evaluated: EvalSet, module: Any) -> None:
        self.name, self.data = evaluated
        self.module = module
        self.parts = list[Tensor]()
        """What this process measured, by batch."""
        self.predictions: Predictions = {}

    @property
    def prefix(self) -> str:
        """The beginning of metric names, after the stage; the main set's name is omitted."""
        family = self.data.family
        return f"{family}/" if self.name == MAIN else f"{family}/{self.name}/"

    def rows(self) -> Tensor:
        """Return what all processes measured, (N, C), on the CPU; a collective operation."""
        parts = torch.zeros(0, self.columns), *self.parts
        own = torch.cat([part.to(self.module.device, torch.float64) for part in parts])
        return torch.cat(gather_all_tensors(own) if dist.is_initialized() else [own]).cpu()

    def measured(self, batch: Any, outputs: Any) -> Tensor:
        """Return the numbers of each example of a batch, (N, C)."""
        raise NotImplementedError

    def named(self, row_NC: Tensor) -> Scalars:
        """Yield names and values of metrics."""
        raise NotImplementedError

    def check(self, stage: str) -> None:
        """Warn of metrics that do not compare; ValueError for predictions that one file cannot
        hold.
        """

    def predict(self, batch: Any, outputs: Any) -> Predictions:
        """Return predictions."""
        return {}

    def write(self, predictions: Predictions, folder: Path) -> None:
        """Write the predictions of all processes to one file."""


class Questions(Family):
    """Questions; their predictions are texts."""

    columns = 4

    def measured(self, batch: Any, outputs: Any) -> Tensor:
        """Type, exact match, F1 and unknown; NaN for a failure."""
        rows = list[list[float]]()
        answers = list(self.module.decode(self.data, batch, outputs))
        questions = self.data.questions([answer.example for answer in answers])
        for answer, question in zip(answers, questions, strict=True):
            scores: Sequence[float] = [math.nan] * 3
            if not answer.failure:
                answerable = question.kind != "unknown"
                scoring = traits(question.dataset).scoring
                scores = score_answer(answer.text, question.gold, scoring, answerable=answerable)
            rows.append([ANSWER_TYPES.index(question.kind), *scores])
        return torch.tensor(rows, dtype=torch.float64).reshape(-1, self.columns)

    def named(self, row_NC: Tensor) -> Scalars:
        answered_NC = row_NC[~row_NC[:, 1].isnan()]
        parts = {f"{ANSWER_TYPES[k]}/": part_NC for k, part_NC in by_class(answered_NC)}
        if len(parts) == 1:
            parts = {}
        for place, part_NC in {"": answered_NC, **parts}.items():
            values = *part_NC[:, 1:].mean(0).tolist(), len(part_NC)
            for name, value in zip(("em", "f1", "unknown", "n"), values, strict=True):
                yield place + name, value
        if failed := len(row_NC) - len(answered_NC):
            yield "failed", failed

    def check(self, stage: str) -> None:
        if stage == "predict":
            for name, count in Counter(self.data.column("id")).items():
                if count > 1:
                    raise ValueError(
                        f"data.predict_qa: {self.name} asks several questions of id {name!r}"
                    )
            return
        gold = map(len, self.data.column("gold"))
        if note := reference_note(zip(self.data.column("dataset"), gold, strict=True)):
            rank_zero_warn(f"{stage}/{self.prefix}f1: {note}")

    def predict(self, batch: Any, outputs: Any) -> Predictions:
        return {
            answer.example: answer.text
            for answer in self.module.decode(self.data, batch, outputs)
            if not answer.failure
        }

    def write(self, predictions: Predictions, folder: Path) -> None:
        ids = (question.id for question in self.data.questions(list(predictions)))
        write_json(folder / f"{self.name}.json", dict(zip(ids, predictions.values(), strict=True)))


class Groups(Family):
    """Groups; their predictions are the boundary probabilities of the two subjects."""

    columns = 9

    def measured(self, batch: Any, outputs: Any) -> Tensor:
        ids = batch.advice_class_B, batch.subject_BS, batch.attribute_B
        return group_rows(outputs["score_BVS"], *ids)

    def named(self, row_NC: Tensor) -> Scalars:
        mu = dict[str, float]()
        for k, part_NC in by_class(row_NC):
            name = ADVICE_CLASSES[k]
            measures = group_measures(part_NC)
            mu[name] = measures["mu"]
            if self.data.encoding.prompts.candidates == 3:
                measures["unknown"] = 1 - measures["mass"]
            yield from ((f"{name}/{measure}", value) for measure, value in measures.items())
        if {"adversarial", "ethical"} <= mu.keys():
            # In [0, 2]; lower is better: advice followed in both directions (code of Zhao et al.
            # 2021).
            yield "selection", (1 - mu["adversarial"]) + mu["ethical"]

    def predict(self, batch: Any, outputs: Any) -> Predictions:
        p_BVSE = outputs["log_prob_BVSE"].double().exp()
        # A decoder's S is used for both boundaries.
        p_BVSE = p_BVSE.expand(*p_BVSE.shape[:-1], 2)
        return dict(zip(batch.group_B.tolist(), p_BVSE.tolist(), strict=True))

    def write(self, predictions: Predictions, folder: Path) -> None:
        scored = (
            ScoredGroup(self.data.groups[i], base_scores=scores)
            for i, scores in predictions.items()
        )
        write_records(scored, folder / f"{self.name}.jsonl")


class Pairs(Family):
    """Pairs of stories, for which no predictions are written."""

    columns = 4

    def measured(self, batch: Any, outputs: Any) -> Tensor:
        cosines = outputs["cls_cos_BL"][:, 0], outputs["token_cos_PL"][:, 0]
        return distance_sums(*cosines, batch.row_P)

    def named(self, row_NC: Tensor) -> Scalars:
        for name, value in shift_measures(row_NC).items():
            yield name.replace("/", f"/{self.data.variant}/"), value


class Choices(Family):
    """Multiple-choice questions; their predictions have a logit for each choice."""

    columns = 2

    def measured(self, batch: Any, outputs: Any) -> Tensor:
        right_B = outputs["logits_BN"].argmax(-1) == batch.label_B  # of equal logits, the first
        return torch.stack([right_B, outputs["loss_B"]], dim=1)

    def named(self, row_NC: Tensor) -> Scalars:
        yield from zip(("accuracy", "loss"), row_NC.mean(0).tolist(), strict=True)
        yield "n", len(row_NC)

    def predict(self, batch: Any, outputs: Any) -> Predictions:
        predictions: Predictions = {}
        logits_BN = outputs["logits_BN"].tolist()
        for i, logits in zip(batch.example_B.tolist(), logits_BN, strict=True):
            question = self.data.questions[i]
            predictions[i] = {"id": question.id, "label": question.label}
            predictions[i] |= {"choice": logits.index(max(logits)), "logits": logits}
        return predictions

    def write(self, predictions: Predictions, folder: Path) -> None:
        write_json(folder / f"{self.name}.json", list(predictions.values()))


FAMILIES = {"qa": Questions, "bias": Groups, "shift": Pairs, "choices": Choices}


class EvalSets(Callback):
    """Logs the metrics of every evaluation set during validation and test; in `predict`, writes its
    predictions. A process without a batch of a set also computes its metrics, because they are over
    all processes. Makes best.ckpt the last checkpoint if no set gives `checkpoint.monitor`.
    """

    stage: str
    families: list[Family]

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Watch nothing if no validation set is of the metric's family."""
        for checkpoint in monitoring(trainer):
            sets = families_of(trainer, "val", pl_module) if trainer.limit_val_batches else []
            if not any(checkpoint.monitor.startswith(f"val/{family.prefix}") for family in sets):
                keep_last(checkpoint)

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """When `max_steps` ends a run, use early stopping, after which Lightning validates, so that
        metrics.json and best.ckpt include the last weights.
        """
        trainer.should_stop |= trainer.global_step == trainer.max_steps

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        command = trainer.state.fn.value
        self.stage = command if command in ("test", "predict") else "val"
        self.families = families_of(trainer, self.stage, pl_module)
        for family in self.families:
            family.check(self.stage)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        family = self.families[dataloader_idx]
        if trainer.predicting:
            family.predictions |= family.predict(batch, outputs)
        else:
            family.parts.append(family.measured(batch, outputs))

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for family in self.families:
            for name, value in family.named(family.rows()):
                key = f"{self.stage}/{family.prefix}{name}"
                scalar = torch.tensor(value, dtype=torch.float32)
                pl_module.log(key, scalar, prog_bar=name.endswith(IN_PROGRESS_BAR))

    on_test_epoch_start = on_predict_start = on_validation_epoch_start
    on_test_batch_end = on_predict_batch_end = on_validation_batch_end
    on_test_epoch_end = on_validation_epoch_end

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        folder = trainer.log_dir
        own = [family.predictions for family in self.families]
        processes = [own] * trainer.world_size
        if trainer.world_size > 1:
            dist.all_gather_object(processes, own)
        if folder is None or not trainer.is_global_zero:
            return
        predictions = Path(folder) / "predictions"
        predictions.mkdir(parents=True, exist_ok=True)
        for family, *parts in zip(self.families, *processes, strict=True):
            items = sorted(item for part in parts for item in part.items())
            family.write(dict(items), predictions)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """ValueError for an unknown metric; a selection score needs ethical and
        adversarial advice.
        """
        metrics = trainer.callback_metrics
        for checkpoint in [] if trainer.sanity_checking else monitoring(trainer):
            monitor = checkpoint.monitor
            if monitor not in metrics and monitor.endswith("/selection"):
                keep_last(checkpoint)
            elif monitor not in metrics:
                near = [key for key in metrics if key.startswith(monitor.rpartition("/")[0])]
                raise ValueError(
                    f"checkpoint.monitor: no metric {monitor!r}; there are {', '.join(near)}"
                )


def families_of(trainer: Trainer, stage: str, module: LightningModule) -> list[Family]:
    """Return the evaluation sets of `val`, `test` or `predict`, in the order of their loaders."""
    sets: list[EvalSet] = trainer.datamodule.eval_sets[stage]
    return [FAMILIES[evaluated.data.family](evaluated, module) for evaluated in sets]


def by_class(row_NC: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yield the rows of each class, the first column, in ascending order."""
    for k in row_NC[:, 0].unique().tolist():
        yield int(k), row_NC[row_NC[:, 0] == k]


def write_json(path: Path, content: Any) -> None:
    """Write indented JSON."""
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def monitoring(trainer: Trainer) -> list[Any]:
    """The checkpoint callbacks of `fit` that watch a metric of validation."""
    callbacks = trainer.checkpoint_callbacks if trainer.state.fn == "fit" else []
    return [part for part in callbacks if str(getattr(part, "monitor", "")).startswith("val/")]


def keep_last(checkpoint: Any) -> None:
    rank_zero_info(
        f"no validation set gives {checkpoint.monitor} (checkpoint.monitor), so best.ckpt is the "
        "last one"
    )
    checkpoint.monitor = None
