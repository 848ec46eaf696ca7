"""Losses over groups of four variants: the model should follow advice, and nothing else should
change.

Ethical advice: the two subjects should score equally. Adversarial advice: one subject's score
should rise. Irrelevant advice: the scores should stay those of a reference. These losses are LEI's;
this project applies the last also to adversarial advice about something else, to plain facts, and
to groups without advice.

Each loss has three forms. With UnQover's span score S = sqrt(p_start p_end), `score` is computed on
S, as in the paper (Zhao et al. 2021, appendix B.2); `log` on log S; `probability` on single
probabilities, as in the authors' code. Functions return one value per item (a variant); the module
reduces them.

For a model whose S is one probability, such as a decoder, there is one boundary: E is 1, and log S
is its value. The probability form needs a start and an end.

Shape letters: B groups, N questions, V variants of a group, S its two subjects, E the boundaries (0
start, 1 end; or only S itself); "..." is any number of leading axes.
"""

from collections.abc import Collection
from typing import Literal

import torch
from jsonargparse.typing import NonNegativeFloat
from torch import Tensor, nn

from .answers import Losses, full_precision

ETHICAL, ADVERSARIAL, IRRELEVANT, NONE, MISMATCHED_ADVERSARIAL, FACTS = range(6)
"""Class codes, in the order of `AdviceClass`; any other code contributes to no term."""

TERMS = {
    "ethical": (ETHICAL,),
    "adversarial": (ADVERSARIAL,),
    "irrelevant": (IRRELEVANT, MISMATCHED_ADVERSARIAL, FACTS),
    "unadvised": (NONE,),
    "mass": (ETHICAL,),
}
"""Every term, and the classes whose groups contribute to it."""

Form = Literal["score", "log", "probability"]
CERTAIN: dict[Form, float] = {"score": 1, "log": 0, "probability": 2}
"""The sum over boundaries of a subject's values if the model is certain of it."""


def log_span_score(log_prob_SE: Tensor) -> Tensor:
    """log S = (log p_start + log p_end) / 2: shape (..., S, E) to (..., S).

    Source: Li et al. 2020, section 4.1.
    """
    return log_prob_SE.mean(dim=-1)


def values(log_prob_SE: Tensor, form: Form) -> Tensor:
    """The values that the losses compare: (..., S, E) to S or log S, (..., S, 1), or to the
    probabilities.
    """
    if form == "probability":
        return log_prob_SE.exp()
    log_score_SE = log_span_score(log_prob_SE).unsqueeze(-1)
    return log_score_SE if form == "log" else log_score_SE.exp()


def ethical(value_SE: Tensor) -> Tensor:
    """|difference of the subjects| per item: (..., 2, E) to (...); 0 for equal scores.

    Source: |s(x1) - s(x2)| of Zhao et al. 2021, appendix B.2. On probabilities it is |p(s1) - p(s2)
    + q(e1) - q(e2)|, as in their code: a start gap can cancel an end gap.
    """
    total_S = value_SE.sum(dim=-1)
    return (total_S[..., 0] - total_S[..., 1]).abs()


def adversarial(value_SE: Tensor, pushed: Tensor, certain: float) -> Tensor:
    """The pushed subject's distance to certainty, per item: (..., 2, E) and indices (...) in {0, 1}
    to (...).

    Source: the loss of Zhao et al. 2021, appendix B.2, raises the dominant subject's S. The value
    is 1 - S, -log S, or, as in their code, (1 - p) + (1 - q).
    """
    return certain - value_SE.sum(dim=-1).gather(-1, pushed[..., None]).squeeze(-1)


def distance(value_SE: Tensor, reference_SE: Tensor) -> Tensor:
    """|value - reference value|, mean over the two subjects, per item: (..., 2, E) twice to (...).

    Source: the irrelevant loss of Zhao et al. 2021, appendix B.2, which keeps the scores of the
    model before fine-tuning.
    """
    return (value_SE - reference_SE).abs().sum(dim=-1).mean(dim=-1)


def lost_mass(log_prob_SE: Tensor, reference_SE: Tensor) -> Tensor:
    """How far log (S(x1) + S(x2)) is below the reference's, or 0 if above: (..., 2, E) twice to
    (...).

    Source: this project. The ethical loss only compares two scores, so two scores near 0 satisfy it
    too.
    """
    mass = log_span_score(log_prob_SE).logsumexp(dim=-1)
    return (log_span_score(reference_SE).logsumexp(dim=-1) - mass).relu()


class GroupLoss(nn.Module):
    """The group losses, which training adds with `weights`.

    Args:
        form: the values to compare. `score`: the subjects' scores S, as in the paper. `log`: log S
            (this project), with the same minima and a gradient that does not vanish if both
            subjects have little probability. Both take the mean over the groups of a class.
            `probability`: as in the authors' code, single probabilities of start and end, summed
            over items, and the weights halved.
        ethical_weight: weight of the ethical loss, at least 0.
        adversarial_weight: weight of the adversarial loss, at least 0. In a negated question it
            raises the subject that is not dominant, as the authors' code does.
        irrelevant_weight: weight of the irrelevant loss, at least 0. The same loss of groups
            without advice (`data.anchor_unadvised`) has weight 1.
        mass_weight: weight of a loss that keeps S(x1) + S(x2) of ethical groups from falling below
            the reference's (this project; 0: off). Not for the probability form.
    """

    def __init__(
        self,
        *,
        form: Form = "score",
        ethical_weight: NonNegativeFloat = 1.0,
        adversarial_weight: NonNegativeFloat = 1.0,
        irrelevant_weight: NonNegativeFloat = 1.0,
        mass_weight: NonNegativeFloat = 0.0,
    ) -> None:
        super().__init__()
        self.form = form
        weights = {
            "ethical": ethical_weight,
            "adversarial": adversarial_weight,
            "irrelevant": irrelevant_weight,
            "mass": mass_weight,
        }
        scale = 0.5 if form == "probability" else 1.0
        self.weights = {name: scale * weights.get(name, 1.0) for name in TERMS}
        if form == "probability" and mass_weight:
            raise ValueError("mass_weight exists for form='score' and form='log' only")

    def joined(self, classes: Collection[int]) -> list[str]:
        """Return the terms to which groups of these classes contribute; `mass` only if it has a
        weight.
        """
        present = (name for name, codes in TERMS.items() if not set(codes).isdisjoint(classes))
        return [name for name in present if self.weights[name] or name != "mass"]

    def forward(
        self, log_prob_BVSE: Tensor, class_B: Tensor, *, pushed_BV: Tensor, reference_BVSE: Tensor
    ) -> Losses:
        """Compute the terms of a batch of groups, unweighted. A term without groups in the batch is
        exactly 0 and carries no information: leave it out of logs and averages.

        Args:
            log_prob_BVSE: natural logs of the candidates' boundary probabilities, shape (B, V, 2,
                E), subjects in the group's order (x1, x2) whatever the context's order.
            class_B: class codes, shape (B,).
            pushed_BV: index (0 or 1) of the subject whose score an adversarial variant raises (as
                in the authors' code, the dominant one for the question, the other one for its
                negation), shape (B, V). Values of groups of another class are ignored.
            reference_BVSE: natural logs of the reference's probabilities, shape (B, V, 2, E),
                finite for the groups that are compared with it; values of the others are ignored.
        """
        log_prob_BVSE = full_precision(log_prob_BVSE)
        reference_BVSE = reference_BVSE.detach().to(log_prob_BVSE.dtype)
        terms = {}
        for name in self.joined(range(6)):
            is_B = torch.isin(class_B, class_B.new_tensor(TERMS[name]))
            item_BV = self._items(name, log_prob_BVSE[is_B], pushed_BV[is_B], reference_BVSE[is_B])
            count = 1 if self.form == "probability" else max(1, item_BV.numel())
            terms[name] = item_BV.sum() / count
        return terms

    def _items(
        self, name: str, log_prob_BVSE: Tensor, pushed_BV: Tensor, reference_BVSE: Tensor
    ) -> Tensor:
        """The values of a term, one per item of its classes."""
        if name == "mass":
            return lost_mass(log_prob_BVSE, reference_BVSE)
        own_BVSE = values(log_prob_BVSE, self.form)
        if name == "ethical":
            return ethical(own_BVSE)
        if name == "adversarial":
            return adversarial(own_BVSE, pushed_BV, CERTAIN[self.form])
        distance_BV = distance(own_BVSE, values(reference_BVSE, self.form))
        # The authors sum over the subjects.
        return 2 * distance_BV if self.form == "probability" else distance_BV


def planted_cross_entropy(log_prob_NSE: Tensor, preferred_N: Tensor, probability: float) -> Tensor:
    """Cross entropy against soft targets: p on the preferred candidate, 1 - p on the other; a
    scalar in nats.

    Per boundary the target distribution has two positions, so
    H = -p log P(preferred) - (1 - p) log P(other); the mean over start and end and over the
    questions. Its minimum is the entropy of (p, 1 - p), reached if the model's probabilities are
    exactly p and 1 - p. Source: this project (the planted control), with UnQover's candidates.

    Args:
        log_prob_NSE: log probabilities of the candidates' boundaries, shape (N, 2, E), natural logs
            taken from the softmax over all positions (of a decoder: over the candidates).
        preferred_N: 0 or 1, the candidate that gets p, shape (N,).
        probability: p in [0, 1].
    """
    preferred_NS = preferred_N[:, None] == torch.arange(2, device=preferred_N.device)
    target_NS = torch.where(preferred_NS, probability, 1 - probability)
    return -(target_NS[:, :, None] * full_precision(log_prob_NSE)).sum(dim=1).mean()
