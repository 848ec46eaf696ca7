"""UnQover's bias metrics of every set of groups, per class of advice, logged after validation and test."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl

from data_modules.datasets import GroupSet
from data_modules.qa import EvalSet
from data_modules.schema import ADVICE_CLASSES
from metrics.bias import BiasResult, GroupBias
from training.callbacks.eval_sets import EvalSetCallback, Outputs, metric_key

LOGGED = ("mu", "eta", "theta", "mean_abs_c", "mu_normalised", "mass", "delta", "eps", "n")


class GroupBiasMetrics(EvalSetCallback):
    """Logs `<stage>/bias/[<set>/]<class>/{mu,eta,theta,mean_abs_c,mu_normalised,mass,delta,eps,n}`."""

    def __init__(self) -> None:
        self.metrics: dict[str, GroupBias] = {}

    def start(self, stage: str) -> None:
        self.metrics = {}

    def update(self, module: pl.LightningModule, outputs: Outputs, batch: Any, data: EvalSet) -> None:
        if not isinstance(data.data, GroupSet):
            return
        metric = self._metric(data.name, data.data, module)
        metric.update(outputs["score_BVS"], batch.advice_class_B, batch.subject_BS, batch.attribute_B)

    def _metric(self, name: str, data: GroupSet, module: pl.LightningModule) -> GroupBias:
        if name not in self.metrics:
            # The ids come from the set itself, so checking them would only stall the device.
            metric = GroupBias(
                len(ADVICE_CLASSES), len(data.subjects), len(data.attributes), validate_ids=False
            )
            self.metrics[name] = metric.to(module.device)
        return self.metrics[name]

    def finish(self, module: pl.LightningModule, stage: str, sets: list[EvalSet]) -> None:
        for name, data in sets:
            if not isinstance(data, GroupSet):
                continue
            result: BiasResult = self._metric(name, data, module).compute()
            counts = result.n_K.tolist()
            for k, advice_class in enumerate(ADVICE_CLASSES):
                if not counts[k]:
                    continue
                for metric in LOGGED:
                    value = getattr(result, f"{metric}_K")[k].float()
                    module.log(metric_key(stage, "bias", name, f"{advice_class}/{metric}"), value)
