"""Accuracy on yes/no questions, alone and in pairs of opposite answers (faithfulness spec 5.1, 5.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from metrics.answers import normalise_answer
from metrics.sum_metric import SumMetric


def yes_or_no(text: str) -> str:
    """ "yes" or "no" where the normalised text is that word, else "".

    >>> yes_or_no("No."), yes_or_no("no one")
    ('no', '')
    """
    normal = normalise_answer(text)
    return normal if normal in ("yes", "no") else ""


def right_or_wrong(name: str, predictions: Sequence[str], answers: Sequence[str]) -> list[bool]:
    """Whether each prediction is the answer; ValueError, which says `name`, unless those are yes or no."""
    if isinstance(answers, str) or len(answers) != len(predictions):
        raise ValueError(f"{name}: {len(answers)} for {len(predictions)} predictions")
    for place, text in enumerate(answers):
        if not yes_or_no(text):
            raise ValueError(f"{name}: answer {place} is {text!r}, expected yes or no")
    return [yes_or_no(said) == yes_or_no(text) for said, text in zip(predictions, answers, strict=True)]


class YesNoResult(NamedTuple):
    """Shares of questions in [0, 1], float64; NaN where n = 0. n is int64."""

    accuracy: Tensor
    yes: Tensor
    """Predictions yes, right or wrong; the paper gives `no`, in brackets."""
    no: Tensor
    n: Tensor


class YesNoAccuracy(SumMetric):
    """Accuracy on yes/no questions, and how often each is said (predicate-argument probe, spec 5.1).

    A prediction other than yes and no is wrong.

    Example:
        >>> metric = YesNoAccuracy()
        >>> metric.update(["No", "no", "the car"], ["no", "yes", "no"])
        >>> [round(value.item(), 3) for value in metric.compute()]
        [0.333, 0.0, 0.667, 3]
    """

    higher_is_better = True
    counts: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_sum("counts", (4,), torch.int64)  # right, yes, no, questions

    def update(self, predictions: Sequence[str], answers: Sequence[str]) -> None:
        """Add questions: one predicted text and one right answer (yes or no) each.

        Raises:
            ValueError: different numbers of the two, or an answer that is neither.
        """
        right = right_or_wrong("answers", predictions, answers)
        said = [yes_or_no(text) for text in predictions]
        row = (sum(right), said.count("yes"), said.count("no"), len(said))
        self.counts += torch.tensor(row, device=self.counts.device)

    def compute(self) -> YesNoResult:
        """Shares of everything seen."""
        right, yes, no, n = self.counts.double()
        return YesNoResult(right / n, yes / n, no / n, self.counts[3])


class ContrastResult(NamedTuple):
    """Shares of pairs in [0, 1], float64; NaN where n = 0. n is int64."""

    org: Tensor
    mod: Tensor
    comb: Tensor
    n: Tensor


class ContrastAccuracy(SumMetric):
    """Org-Acc, Mod-Acc and Comb-Acc of pairs of stories with opposite answers (negation, spec 5.2).

    Comb-Acc counts a pair where both predictions are right. One other than yes and no is wrong.

    Example:
        >>> metric = ContrastAccuracy()
        >>> metric.update(["yes", "yes"], ["no", "yes"], ["yes", "yes"], ["no", "no"])
        >>> [value.item() for value in metric.compute()]
        [1.0, 0.5, 0.5, 2]
    """

    higher_is_better = True
    counts: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_sum("counts", (4,), torch.int64)  # original right, modified right, both, pairs

    def update(
        self,
        org_predictions: Sequence[str],
        mod_predictions: Sequence[str],
        org_answers: Sequence[str],
        mod_answers: Sequence[str],
    ) -> None:
        """Add pairs: for the original and the modified story, a predicted text and the right answer.

        Raises:
            ValueError: different numbers of these, or an answer other than yes and no.
        """
        org = right_or_wrong("org_answers", org_predictions, org_answers)
        mod = right_or_wrong("mod_answers", mod_predictions, mod_answers)
        if len(org) != len(mod):
            raise ValueError(f"mod_predictions: {len(mod)} for {len(org)} org_predictions")
        both = sum(a and b for a, b in zip(org, mod, strict=True))
        self.counts += torch.tensor((sum(org), sum(mod), both, len(org)), device=self.counts.device)

    def compute(self) -> ContrastResult:
        """Shares of everything seen."""
        org, mod, comb, n = self.counts.double()
        return ContrastResult(org / n, mod / n, comb / n, self.counts[3])
