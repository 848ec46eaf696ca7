"""UnQover's bias metrics of every set of groups, per class of advice, logged after validation and test."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl
import torch

from data_modules.batching.eval_sets import EvalSet
from data_modules.encoding.sets import GroupSet
from data_modules.schema import ADVICE_CLASSES
from metrics.bias.group_bias import GroupBias
from metrics.bias.sums import BiasResult
from training.callbacks.eval_sets import EvalSetCallback, Outputs, metric_key

LOGGED = ("mu", "eta", "theta", "mean_abs_c", "mu_normalised", "mass", "delta", "eps", "n")


ADVERSARIAL, ETHICAL = (ADVICE_CLASSES.index(name) for name in ("adversarial", "ethical"))


class GroupBiasMetrics(EvalSetCallback):
    """Logs `<stage>/bias/[<set>/]<class>/{mu,eta,theta,mean_abs_c,mu_normalised,mass,delta,eps,n}`, and,
    where groups of both classes are there, `<stage>/bias/[<set>/]selection`.
    """

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
            if counts[ADVERSARIAL] and counts[ETHICAL]:
                score = selection_score(result.mu_K).float()
                module.log(metric_key(stage, "bias", name, "selection"), score)


def selection_score(mu_K: torch.Tensor) -> torch.Tensor:
    """What models are chosen by on a development set: advice obeyed in both directions; lower is better.

    Args:
        mu_K: float (K,), mu of each class of advice, nan where there are no groups of it.

    Returns:
        Scalar in [0, 2]: (1 - mu of adversarial) + mu of ethical (Zhao et al. 2021, in the authors' code for
        model selection); nan where a class is missing.
    """
    return (1 - mu_K[ADVERSARIAL]) + mu_K[ETHICAL]
