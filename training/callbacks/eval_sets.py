"""Metrics of every evaluation set, logged as `<stage>/<family>/[<set>/]<metric>`;
`checkpoint.monitor` selects one of them.

- qa: em, f1, unknown (in [0, 1]) and n, and the same for each type of answer (`yes/em`) if a set
  has several; `failed`, the number of questions that a decoder did not answer. Predictions are
  compared with the answers to the original story, so in a variant without its rationale `em` is the
  share of old answers, and a faithful model answers `unknown`.
- bias: <class>/{mu,eta,theta,mean_abs_c,mu_normalised,mass,delta,eps,n}, `unknown` (1 - mass) if it
  is a candidate, and `selection` if there are groups of ethical and adversarial advice.
- shift: {cls,tokens}/<variant>/{mean,std} of the last layer (faithfulness spec 4.2).
- choices: accuracy, loss, n; the loss is that of training, without weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.utilities import rank_zero_info, rank_zero_warn
from torch import Tensor

from interventune.data_modules.batching.data_module import MAIN, EvalSet
from interventune.data_modules.batching.group_set import GroupSet
from interventune.data_modules.batching.pair_set import PairSet
from interventune.data_modules.batching.sets import QASet
from interventune.data_modules.schema.datasets import traits
from interventune.data_modules.schema.groups import ADVICE_CLASSES
from interventune.data_modules.schema.questions import ANSWER_TYPES
from interventune.metrics.answers import AnswerScores, reference_note
from interventune.metrics.bias.group_bias import GroupBias

QA_NAMES = ("em", "f1", "unknown", "n")
BIAS_NAMES = ("mu", "eta", "theta", "mean_abs_c", "mu_normalised", "mass", "delta", "eps", "n")
SHIFT_NAMES = ("mean", "std", "macro")
IN_PROGRESS_BAR = ("f1", "accuracy")
ADVERSARIAL, ETHICAL = (ADVICE_CLASSES.index(name) for name in ("adversarial", "ethical"))


class SetMetric:
    """The metric of one evaluation set, computed from the outputs of `module` in a stage, `val` or
    `test`.
    """

    def __init__(self, stage: str, evaluated: EvalSet, module: Any) -> None:
        self.stage, self.name, self.data, self.module = (
            stage,
            evaluated.name,
            evaluated.data,
            module,
        )
        metric: Any
        if isinstance(self.data, QASet):
            metric = AnswerScores(ANSWER_TYPES)
        elif isinstance(self.data, GroupSet):
            ids = self.data.ids
            metric = GroupBias(len(ADVICE_CLASSES), len(ids.subjects), len(ids.attributes))
        elif isinstance(self.data, PairSet):
            from interventune.metrics.shift import EmbeddingShift

            metric = EmbeddingShift(1)
        else:
            from interventune.metrics.choices import ChoiceScores

            metric = ChoiceScores()
        self.metric = metric.to(next(module.parameters()).device)

    def update(self, batch: Any, outputs: Any) -> None:
        """Add the outputs of `validation_step` for a batch."""
        if isinstance(self.data, QASet):
            answers = list(self.module.decode(self.data, batch, outputs))
            questions = self.data.questions([answer.example for answer in answers])
            self.metric.update(
                [None if answer.failure else answer.text for answer in answers],
                [question.gold for question in questions],
                [ANSWER_TYPES.index(question.kind) for question in questions],
                [traits(question.dataset).scoring for question in questions],
            )
        elif isinstance(self.data, GroupSet):
            classes = batch.advice_class_B, batch.subject_BS, batch.attribute_B
            self.metric.update(outputs["score_BVS"], *classes)
        elif isinstance(self.data, PairSet):
            cosines = outputs["cls_cos_BL"], outputs["token_cos_PL"]
            self.metric.update(*cosines, batch.row_P)
        else:
            self.metric.update(outputs["logits_BN"], batch.label_B, outputs["loss_B"])

    def values(self) -> Iterator[tuple[str, Tensor]]:
        """Yield keys and scalars to log; all processes must take part."""
        for name, value in named_values(self.data, self.metric.compute()):
            # torchmetrics squeezes some one-element results, but not all.
            yield metric_key(self.stage, self.data.family, self.name, name), value.float().squeeze()


def named_values(data: Any, result: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield names and scalars of a set's result."""
    if isinstance(data, QASet):
        yield from ((name, getattr(result, name)) for name in QA_NAMES)
        if result.failed:
            yield "failed", result.failed
        present = [k for k, count in enumerate(result.n_K.tolist()) if count]
        for k in present if len(present) > 1 else []:
            yield from (
                (f"{ANSWER_TYPES[k]}/{name}", getattr(result, f"{name}_K")[k]) for name in QA_NAMES
            )
    elif isinstance(data, GroupSet):
        counts = result.n_K.tolist()
        for k, kind in enumerate(ADVICE_CLASSES):
            if counts[k]:
                yield from (
                    (f"{kind}/{name}", getattr(result, f"{name}_K")[k]) for name in BIAS_NAMES
                )
            if counts[k] and data.encoding.prompts.candidates == 3:
                yield f"{kind}/unknown", 1 - result.mass_K[k]
        if counts[ADVERSARIAL] and counts[ETHICAL]:
            # In [0, 2]; lower is better: advice followed in both directions (code of Zhao et al.
            # 2021).
            yield "selection", (1 - result.mu_K[ADVERSARIAL]) + result.mu_K[ETHICAL]
    elif isinstance(data, PairSet):
        cls, tokens = f"cls/{data.variant}", f"tokens/{data.variant}"
        yield from ((f"{cls}/{name}", getattr(result, f"cls_{name}_L")) for name in ("mean", "std"))
        yield from (
            (f"{tokens}/{name}", getattr(result, f"token_{name}_L")) for name in SHIFT_NAMES
        )
        yield f"{cls}/n", result.n
    else:
        yield from result._asdict().items()


def metric_key(stage: str, family: str, name: str, metric: str) -> str:
    """`<stage>/<family>/[<set>/]<metric>`; the main set's name is omitted."""
    return "/".join([stage, family, metric] if name == MAIN else [stage, family, name, metric])


class EvalSetMetrics(pl.Callback):
    """Updates a metric for every evaluation set during validation and test, and logs it. A process
    without a batch of a set also computes its metric, because the sum runs over all processes.
    """

    metrics: list[SetMetric]

    def on_validation_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        stage = "test" if trainer.testing else "val"
        sets = trainer.datamodule.eval_sets[stage]
        self.metrics = [SetMetric(stage, evaluated, pl_module) for evaluated in sets]
        for name, data in sets:
            if isinstance(data, QASet):
                references = zip(data.column("dataset"), map(len, data.column("gold")), strict=True)
                if note := reference_note(references):
                    rank_zero_warn(f"{metric_key(stage, data.family, name, 'f1')}: {note}")

    def on_validation_batch_end(
        self,
        trainer: Any,
        pl_module: Any,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        self.metrics[dataloader_idx].update(batch, outputs)

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        for metric in self.metrics:
            for key, value in metric.values():
                pl_module.log(key, value, prog_bar=key.endswith(IN_PROGRESS_BAR))

    on_test_epoch_start = on_validation_epoch_start
    on_test_batch_end = on_validation_batch_end
    on_test_epoch_end = on_validation_epoch_end


class Watched(pl.Callback):
    """Validates the final weights, and makes best.ckpt the last checkpoint if no set gives
    `checkpoint.monitor`."""

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Watch nothing if no validation set is of the metric's family."""
        sets = trainer.datamodule.eval_sets.get("val", []) if trainer.limit_val_batches else []
        given = tuple(metric_key("val", data.family, name, "") for name, data in sets)
        for checkpoint in trainer.checkpoint_callbacks if stage == "fit" else []:
            monitor = getattr(checkpoint, "monitor", None) or ""
            if monitor.startswith("val/") and not monitor.startswith(given):
                _keep_last(checkpoint)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """ValueError for an unknown metric; a selection score needs ethical and
        adversarial advice.
        """
        for checkpoint in trainer.checkpoint_callbacks if trainer.state.fn == "fit" else []:
            monitor = getattr(checkpoint, "monitor", None) or ""
            if monitor.endswith("/selection") and monitor not in trainer.callback_metrics:
                _keep_last(checkpoint)
            elif monitor.startswith("val/") and monitor not in trainer.callback_metrics:
                near = [
                    key
                    for key in trainer.callback_metrics
                    if key.startswith(monitor.rpartition("/")[0])
                ]
                raise ValueError(
                    f"checkpoint.monitor: no metric {monitor!r}; there are {', '.join(near)}"
                )

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        """When `max_steps` ends a run, use early stopping, after which Lightning validates, so that
        metrics.json and best.ckpt include the last weights."""
        if trainer.global_step == trainer.max_steps:
            trainer.should_stop = True


def _keep_last(checkpoint: Any) -> None:
    rank_zero_info(
        f"no validation set gives {checkpoint.monitor} (checkpoint.monitor), so best.ckpt is the "
        "last one"
    )
    checkpoint.monitor = None
