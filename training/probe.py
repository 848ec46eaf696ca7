"""Group bias, embedding shift and answers of a model that somebody else's code trains.

    data = GroupsDataModule(tokenizer="roberta-base", architecture="roberta", cache="",
                            val_groups={"main": "lei_dev.json"}, interventions=Interventions(shift=["ts_r"]))
    trainer = transformers.Trainer(model, ..., callbacks=[TransformersProbe(data)])
    trainer = pl.Trainer(callbacks=[LightningProbe(data, model=lambda module: module.bert)])

The names and the meaning of the metrics are those of our own runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytorch_lightning as pl
import torch
from transformers import PreTrainedModel, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from data_modules.batching.data_module import TextDataModule
from models.heads.span import SpanModel
from training.callbacks.eval_sets import SetMetric
from training.modules.qa import QAModule


class _ProbedModel(QAModule):
    """A model of transformers behind the questions of our validation; its weights are shared, not copied."""

    def __init__(self, model: PreTrainedModel, data: TextDataModule) -> None:
        pl.LightningModule.__init__(self)
        self.model, self.data = SpanModel(model, data.architecture), data

    @property
    def datamodule(self) -> TextDataModule:
        return self.data


@torch.no_grad()
def probe(model: PreTrainedModel, data: TextDataModule) -> dict[str, float]:
    """The metrics of every validation set of `data`, by name; the model is left as it was.

    Where torch.distributed runs, every process must call this: each answers its share of every set, and all
    get the metrics of the whole.

    Args:
        model: transformers' model for question answering, on any device, of an architecture in the table of
            backbones.
        data: groups, questions, and pairs of stories to compare (`interventions.shift`).

    Raises:
        ValueError: a source cannot be read, or is one of multiple-choice questions.
    """
    if "choices" in data.kinds:
        raise ValueError("data: multiple-choice questions are not for a model that answers with a span")
    if "val" not in data.eval_sets:
        data.setup("validate")
    module, training, found = _ProbedModel(model, data), model.training, dict[str, float]()
    model.eval()
    try:
        for evaluated, loader in zip(data.eval_sets["val"], data.val_dataloader(), strict=True):
            metric = SetMetric("val", evaluated, module)
            for batch in loader:
                moved = module.transfer_batch_to_device(batch, model.device, 0)
                metric.update(moved, module.validation_step(moved, 0))
            found |= {key: float(value) for key, value in metric.values()}
    finally:
        model.train(training)
    return found


class TransformersProbe(TrainerCallback):
    """Probes at every evaluation of transformers' Trainer; what is asked is `data`, as in `probe`.

    The numbers are in the evaluation's metrics, where `metric_for_best_model` finds them, and in the state's
    history of logs; whoever wants them in other reporters too calls `trainer.log(callback.latest)`.
    """

    def __init__(self, data: TextDataModule) -> None:
        self.data, self.latest = data, dict[str, float]()

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Probe in every process, since each has a share of the sets; the first one writes the history."""
        self.latest = probe(kwargs["model"], self.data)
        kwargs.get("metrics", {}).update(self.latest)
        if state.is_world_process_zero:
            state.log_history.append({**self.latest, "step": state.global_step, "epoch": state.epoch or 0.0})


class LightningProbe(pl.Callback):
    """Probes at the end of every validation of somebody's LightningModule, and logs to its loggers; `data` is
    asked, as in `probe`, of transformers' model, which `model` finds in the module."""

    def __init__(self, data: TextDataModule, model: Callable[[pl.LightningModule], PreTrainedModel]) -> None:
        self.data, self.model = data, model

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        for name, value in probe(self.model(pl_module), self.data).items():
            pl_module.log(name, value)
