"""Metrics of every evaluation set, logged as `<stage>/<family>/[<set>/]<metric>`, and what
`checkpoint.monitor` watches of them.

- qa: em, f1, unknown (in [0, 1]) and n, and the same for each type of answer (`yes/em`) where a set has more
  than one. Predictions are compared with the answers to the original story, so that in a variant without its
  rationale `em` is the share of old answers, and `unknown` what a faithful model says.
- bias: <class>/{mu,eta,theta,mean_abs_c,mu_normalised,mass,delta,eps,n}, `unknown` (1 - mass) where it is
  offered, and `selection` where groups of ethical and adversarial advice are there.
- shift: {cls,tokens}/<variant>/{mean,std} of the last layer (faithfulness spec 4.2), `.../layer_03/...` of
  the others where every layer is watched.
- choices: accuracy, loss, n; the loss is that of training, without weights.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.utilities import rank_zero_info, rank_zero_warn
from torch import Tensor
from torchmetrics import Metric

from data_modules.batching.data_module import MAIN, EvalSet
from data_modules.batching.group_set import GroupSet
from data_modules.batching.sets import PairSet, QASet
from data_modules.schema import ADVICE_CLASSES, ANSWER_TYPES
from metrics.answers import AnswerScores, reference_note, scoring_of
from metrics.bias.group_bias import GroupBias

QA_NAMES = ("em", "f1", "unknown", "n")
BIAS_NAMES = ("mu", "eta", "theta", "mean_abs_c", "mu_normalised", "mass", "delta", "eps", "n")
IN_PROGRESS_BAR = ("f1", "accuracy")
ADVERSARIAL, ETHICAL = (ADVICE_CLASSES.index(name) for name in ("adversarial", "ethical"))


def metric_key(stage: str, family: str, name: str, metric: str) -> str:
    """`<stage>/<family>/[<set>/]<metric>`; the main set carries no name."""
    parts = [stage, family, metric] if name == MAIN else [stage, family, name, metric]
    return "/".join(parts)


class EvalSetMetrics(pl.Callback):
    """Follows a metric for every evaluation set through validation and test, and logs what it says.

    Processes without a batch of a set compute its metric too, because the sum runs over all processes.
    """

    def __init__(self) -> None:
        self.metrics: list[Metric] = []
        self.noted = False

    def on_validation_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """A new metric for every set."""
        sets = trainer.datamodule.eval_sets[_stage(trainer)]
        self.metrics = [new_metric(data, pl_module).to(pl_module.device) for _, data in sets]
        for note in [] if self.noted else metric_notes(_stage(trainer), sets):
            rank_zero_warn(note)
        self.noted = True

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Take in what `validation_step` returned for a batch."""
        data = trainer.datamodule.eval_sets[_stage(trainer)][dataloader_idx].data
        metric: Any = self.metrics[dataloader_idx]
        update_metric(metric, data, batch, outputs, pl_module)

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Log all values."""
        stage = _stage(trainer)
        for (name, data), metric in zip(trainer.datamodule.eval_sets[stage], self.metrics, strict=True):
            for value_name, value in named_values(data, metric.compute()):
                key = metric_key(stage, data.family, name, value_name)
                pl_module.log(key, value.float(), prog_bar=value_name in IN_PROGRESS_BAR)

    on_test_epoch_start = on_validation_epoch_start
    on_test_batch_end = on_validation_batch_end
    on_test_epoch_end = on_validation_epoch_end


def _stage(trainer: pl.Trainer) -> str:
    return "test" if trainer.testing else "val"


def metric_notes(stage: str, sets: Iterable[EvalSet]) -> list[str]:
    """What readers of the metrics of some sets must know, each with the keys that it is about."""
    about: dict[str, list[str]] = {}
    for name, data in sets:
        if not isinstance(data, QASet):
            continue
        if note := reference_note(zip(data.column("dataset"), map(len, data.column("gold")), strict=True)):
            about.setdefault(note, []).append(metric_key(stage, data.family, name, "f1"))
    return [f"{', '.join(keys)}: {note}" for note, keys in about.items()]


def new_metric(data: Any, module: Any) -> Metric:
    """The metric of a set."""
    if isinstance(data, QASet):
        return AnswerScores(ANSWER_TYPES)
    if isinstance(data, PairSet):
        from metrics.shift import EmbeddingShift

        return EmbeddingShift(module.watched_layers())
    if data.family == "choices":
        from metrics.choices import ChoiceScores

        return ChoiceScores()
    sizes = len(data.ids.subjects), len(data.ids.attributes)
    return GroupBias(len(ADVICE_CLASSES), *sizes)


def update_metric(metric: Any, data: Any, batch: Any, outputs: Any, module: Any) -> None:
    """Add what the validation step of a module returned for a batch of a set."""
    if isinstance(data, QASet):
        answers = list(module.decode(data, batch, outputs))
        questions = data.questions([answer.example for answer in answers])
        metric.update(
            [answer.text for answer in answers],
            [question.gold for question in questions],
            [ANSWER_TYPES.index(question.kind) for question in questions],
            [scoring_of(question.dataset) for question in questions],
        )
    elif isinstance(data, GroupSet):
        metric.update(outputs["score_BVS"], batch.advice_class_B, batch.subject_BS, batch.attribute_B)
    elif isinstance(data, PairSet):
        metric.update(outputs["cls_cos_BL"], outputs["token_cos_PL"], batch.row_P, len(batch.original.cls_B))
    else:
        metric.update(outputs["logits_BN"], batch.label_B, outputs["loss_B"])


def named_values(data: Any, result: Any) -> Iterator[tuple[str, Tensor]]:
    """Names and scalars to log of a set's result."""
    if isinstance(data, QASet):
        yield from ((name, getattr(result, name)) for name in QA_NAMES)
        present = [k for k, count in enumerate(result.n_K.tolist()) if count]
        for k in present if len(present) > 1 else []:
            yield from ((f"{ANSWER_TYPES[k]}/{name}", getattr(result, f"{name}_K")[k]) for name in QA_NAMES)
    elif isinstance(data, GroupSet):
        counts = result.n_K.tolist()
        for k, advice_class in enumerate(ADVICE_CLASSES):
            if counts[k]:
                yield from (
                    (f"{advice_class}/{name}", getattr(result, f"{name}_K")[k]) for name in BIAS_NAMES
                )
                if data.encoding.candidates == 3:
                    yield f"{advice_class}/unknown", 1 - result.mass_K[k]
        if counts[ADVERSARIAL] and counts[ETHICAL]:
            yield "selection", selection_score(result.mu_K)
    elif isinstance(data, PairSet):
        from metrics.shift import ShiftResult

        # torchmetrics squeezes results of one element.
        result = ShiftResult(*(torch.atleast_1d(value) for value in result))
        cls, tokens = f"cls/{data.variant}", f"tokens/{data.variant}"
        last = len(result.cls_mean_L) - 1
        for layer in range(last + 1):
            at = "" if layer == last else f"layer_{layer:02d}/"
            yield f"{cls}/{at}mean", result.cls_mean_L[layer]
            yield f"{cls}/{at}std", result.cls_std_L[layer]
            yield f"{tokens}/{at}mean", result.token_mean_L[layer]
            yield f"{tokens}/{at}std", result.token_std_L[layer]
            yield f"{tokens}/{at}macro", result.token_macro_L[layer]
        yield f"{cls}/n", result.n[0]
    else:
        yield from result._asdict().items()


def selection_score(mu_K: Tensor) -> Tensor:
    """What models are chosen by on a development set: advice obeyed in both directions; lower is better.

    Args:
        mu_K: float (K,), mu of each class of advice, nan where there are no groups of it.

    Returns:
        Scalar in [0, 2]: (1 - mu of adversarial) + mu of ethical (Zhao et al. 2021, in the authors' code for
        model selection); nan where a class is missing.
    """
    return (1 - mu_K[ADVERSARIAL]) + mu_K[ETHICAL]


class MonitorCheck(pl.Callback):
    """Sees to it that `checkpoint.monitor` is a metric that validation logs.

    Where no validation set gives it, best.ckpt is the last checkpoint. A name that its sets do not log ends
    the run at the first validation: Lightning would go on for days and keep nothing.
    """

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Watch nothing where no set of the metric's family is validated on."""
        sets = getattr(trainer.datamodule, "eval_sets", {}).get("val")
        if stage != "fit" or sets is None:
            return
        families = [metric_key("val", data.family, name, "") for name, data in sets]
        for checkpoint in _monitored(trainer):
            validated = trainer.limit_val_batches and checkpoint.monitor.startswith(tuple(families))
            if checkpoint.monitor.startswith("val/") and not validated:
                _keep_last(checkpoint)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """ValueError that names the nearest keys there are."""
        logged = list(trainer.callback_metrics)
        for checkpoint in _monitored(trainer) if trainer.state.fn == "fit" else []:
            if checkpoint.monitor in logged:
                continue
            if checkpoint.monitor.endswith("/selection"):  # needs ethical and adversarial advice
                _keep_last(checkpoint)
                continue
            near = difflib.get_close_matches(checkpoint.monitor, logged, n=3) or sorted(logged)[:6]
            raise ValueError(
                f"checkpoint.monitor: no metric {checkpoint.monitor!r}; there are {', '.join(near)}, ..."
            )


class FinalValidation(pl.Callback):
    """Validates where `max_steps` ends a run: metrics.json and best.ckpt shall know its last weights."""

    def __init__(self) -> None:
        self.validated_at = 0

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        """Stop as one who stops early, whom Lightning validates."""
        if trainer.global_step == trainer.max_steps and self.validated_at != trainer.global_step:
            trainer.should_stop = True

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Note of which step there are metrics."""
        if not trainer.sanity_checking:
            self.validated_at = trainer.global_step

    def state_dict(self) -> dict[str, Any]:
        """What a run that goes on must know."""
        return {"validated_at": self.validated_at}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """When it was validated before."""
        self.validated_at = state_dict.get("validated_at", 0)


def _monitored(trainer: pl.Trainer) -> list[ModelCheckpoint]:
    checkpoints = [c for c in trainer.checkpoint_callbacks if isinstance(c, ModelCheckpoint)]
    return [checkpoint for checkpoint in checkpoints if checkpoint.monitor]


def _keep_last(checkpoint: ModelCheckpoint) -> None:
    rank_zero_info(
        f"no validation set gives {checkpoint.monitor} (checkpoint.monitor): best.ckpt is the last one"
    )
    checkpoint.monitor = None
