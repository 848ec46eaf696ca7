"""One metric for every evaluation set of a kind, followed through validation and test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytorch_lightning as pl
from torch import Tensor
from torchmetrics import Metric

from data_modules.batching.choice_set import ChoiceSet
from data_modules.batching.eval_sets import MAIN, EvalSet
from data_modules.batching.sets import GroupSet, PairSet, QASet

Outputs = Mapping[str, Any]
FAMILIES: dict[type, str] = {QASet: "qa", GroupSet: "bias", PairSet: "shift", ChoiceSet: "choices"}
"""What the metrics of each kind of set are called."""


def metric_key(stage: str, family: str, name: str, metric: str) -> str:
    """`<stage>/<family>/[<set>/]<metric>`; the main set carries no name."""
    parts = [stage, family, metric] if name == MAIN else [stage, family, name, metric]
    return "/".join(parts)


class EvalSetMetrics(pl.Callback):
    """Keeps a metric for every evaluation set of one kind and logs what it says.

    Subclasses say which kind, how a metric is made and updated, and under which names its results are logged.
    Processes without a batch of a set compute its metric too, because the sum runs over all processes.
    """

    kind: type
    """Of the data sets, a key of `FAMILIES`."""
    shown: str = ""
    """The metric in the progress bar."""

    def __init__(self) -> None:
        self.metrics: dict[int, Metric] = {}

    def new_metric(self, data: Any, module: Any) -> Metric:
        """A metric for a set."""
        raise NotImplementedError

    def update(self, metric: Any, data: Any, batch: Any, outputs: Outputs, module: Any) -> None:
        """Take in what `validation_step` returned for a batch."""
        raise NotImplementedError

    def values(self, result: Any, data: Any) -> Iterator[tuple[str, Tensor]]:
        """Names and scalars to log."""
        raise NotImplementedError

    def computed(self, trainer: pl.Trainer, stage: str, results: list[tuple[str, Any, Any]]) -> None:
        """Called with the name, the data and the result of every set."""

    def on_validation_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.metrics = {}

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        data = _sets(trainer)[dataloader_idx].data
        if isinstance(data, self.kind):
            self.update(self._metric(dataloader_idx, data, pl_module), data, batch, outputs, pl_module)

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        stage, results = _stage(trainer), []
        for index, evaluated in enumerate(_sets(trainer)):
            if isinstance(evaluated.data, self.kind):
                result = self._metric(index, evaluated.data, pl_module).compute()
                for name, value in self.values(result, evaluated.data):
                    key = metric_key(stage, FAMILIES[self.kind], evaluated.name, name)
                    pl_module.log(key, value.float(), prog_bar=name == self.shown)
                results.append((evaluated.name, evaluated.data, result))
        self.computed(trainer, stage, results)

    on_test_epoch_start = on_validation_epoch_start
    on_test_batch_end = on_validation_batch_end
    on_test_epoch_end = on_validation_epoch_end

    def _metric(self, index: int, data: Any, module: pl.LightningModule) -> Metric:
        if index not in self.metrics:
            self.metrics[index] = self.new_metric(data, module).to(module.device)
        return self.metrics[index]


def _stage(trainer: pl.Trainer) -> str:
    return "test" if trainer.testing else "val"


def _sets(trainer: pl.Trainer) -> list[EvalSet]:
    sets: list[EvalSet] = trainer.datamodule.eval_sets[_stage(trainer)]
    return sets
