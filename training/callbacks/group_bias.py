"""UnQover's bias metrics of every set of groups, per class of advice, logged after validation and test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from data_modules.batching.sets import GroupSet
from data_modules.schema import ADVICE_CLASSES
from metrics.bias.group_bias import GroupBias
from metrics.bias.sums import BiasResult
from training.callbacks.eval_sets import EvalSetMetrics, Outputs

NAMES = ("mu", "eta", "theta", "mean_abs_c", "mu_normalised", "mass", "delta", "eps", "n")
ADVERSARIAL, ETHICAL = (ADVICE_CLASSES.index(name) for name in ("adversarial", "ethical"))


class GroupBiasMetrics(EvalSetMetrics):
    """Logs `<stage>/bias/[<set>/]<class>/{mu,eta,theta,mean_abs_c,mu_normalised,mass,delta,eps,n}`, and,
    where groups of both classes are there, `<stage>/bias/[<set>/]selection`.
    """

    kind = GroupSet

    def new_metric(self, data: GroupSet, module: Any) -> GroupBias:
        # The ids come from the set itself, so checking them would only stall the device.
        ids = data.ids
        return GroupBias(len(ADVICE_CLASSES), len(ids.subjects), len(ids.attributes), validate_ids=False)

    def update(self, metric: GroupBias, data: GroupSet, batch: Any, outputs: Outputs, module: Any) -> None:
        metric.update(outputs["score_BVS"], batch.advice_class_B, batch.subject_BS, batch.attribute_B)

    def values(self, result: BiasResult, data: GroupSet) -> Iterator[tuple[str, Tensor]]:
        counts = result.n_K.tolist()
        for k, advice_class in enumerate(ADVICE_CLASSES):
            if counts[k]:
                yield from ((f"{advice_class}/{name}", getattr(result, f"{name}_K")[k]) for name in NAMES)
        if counts[ADVERSARIAL] and counts[ETHICAL]:
            yield "selection", selection_score(result.mu_K)


def selection_score(mu_K: Tensor) -> Tensor:
    """What models are chosen by on a development set: advice obeyed in both directions; lower is better.

    Args:
        mu_K: float (K,), mu of each class of advice, nan where there are no groups of it.

    Returns:
        Scalar in [0, 2]: (1 - mu of adversarial) + mu of ethical (Zhao et al. 2021, in the authors' code for
        model selection); nan where a class is missing.
    """
    return (1 - mu_K[ADVERSARIAL]) + mu_K[ETHICAL]
