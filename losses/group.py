"""Losses over groups of four variants: advice is followed, and nothing else changes.

Ethical advice closes the gap between the two subjects, adversarial advice raises one; irrelevant advice keeps
the scores of a reference. These are LEI's. No advice and advice about another domain (mismatched) keep them
too, which is ours.

Each wish is stated in one of three forms. S being UnQover's span score sqrt(p_start p_end), `score` states it
on S, as the paper does, `log` on log S, and `probability` on single probabilities, as the authors' code does
(LEI spec 4.2, 4.6). Functions return one value per item (a variant), the module reduces them.

A model whose S is one probability, as a decoder's, has one boundary: E is 1, and log S what stands there. The
probability form, which speaks of start and end, is not for it.

Shape letters: B groups, V variants of a group, S its two subjects, E the boundaries (0 start, 1 end; or one,
as of S itself), I items (all variants of all groups); "..." is any number of leading axes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from losses.span import full_precision

ETHICAL, ADVERSARIAL, IRRELEVANT, NONE, MISMATCHED_ETHICAL, MISMATCHED_ADVERSARIAL = range(6)
"""Class codes, in the order of `AdviceClass`; any other code joins no term."""

TERMS = {
    "ethical": (ETHICAL,),
    "adversarial": (ADVERSARIAL,),
    "irrelevant": (IRRELEVANT,),
    "unadvised": (NONE,),
    "mismatched": (MISMATCHED_ETHICAL, MISMATCHED_ADVERSARIAL),
    "mass": (ETHICAL,),
    "consistency": (ETHICAL, ADVERSARIAL),
    "gap": (MISMATCHED_ETHICAL, MISMATCHED_ADVERSARIAL),
}
"""Every term, and the classes whose groups join it."""
EXTRA = ("mass", "consistency", "gap")
"""Terms of this project that are not computed without a weight."""
PAIRED = ("consistency", "gap")
"""Terms that compare groups of one question."""

Form = Literal["score", "log", "probability"]
CERTAIN: dict[Form, float] = {"score": 1, "log": 0, "probability": 2}
"""What the values of a subject that is answered with certainty sum up to."""
SPANS_ONLY = (
    "model.loss.form=probability speaks of start and end, which a decoder does not have; choose score or log"
)


def scope_cross_entropy(logit_BV: Tensor, class_B: Tensor) -> Tensor:
    """Binary cross-entropy, in nats, of telling matched from mismatched advice: (B, V) and (B,) to a scalar.

    The mean over variants of groups with ethical or adversarial advice, of either kind; 0 without any.
    """
    is_mismatched_B = class_of(class_B, TERMS["mismatched"])
    asked_BV = (class_of(class_B, (ETHICAL, ADVERSARIAL)) | is_mismatched_B)[:, None].expand_as(logit_BV)
    target_BV = (~is_mismatched_B).to(logit_BV.dtype)[:, None].expand_as(logit_BV)
    item_BV = binary_cross_entropy_with_logits(logit_BV, target_BV, reduction="none")
    return torch.where(asked_BV, item_BV, 0.0).sum() / asked_BV.sum().clamp(min=1)


def log_span_score(log_prob_SE: Tensor) -> Tensor:
    """log S = (log p_start + log p_end) / 2: shape (..., S, E) to (..., S). UnQover section 4.1, spec 2.1."""
    return log_prob_SE.mean(dim=-1)


def values(log_prob_SE: Tensor, form: Form) -> Tensor:
    """What the wishes are stated on: (..., S, E) to S or log S, (..., S, 1), or to the probabilities."""
    if form == "probability":
        return log_prob_SE.exp()
    log_score_SE = log_span_score(log_prob_SE).unsqueeze(-1)
    return log_score_SE if form == "log" else log_score_SE.exp()


def ethical(value_SE: Tensor) -> Tensor:
    """|difference of the subjects| per item: (..., 2, E) to (...). 0 where they tie.

    Source: LEI's |s(x1) - s(x2)| (spec 4.6, item 1). On probabilities it is |p(s1) - p(s2) + q(e1) - q(e2)|,
    as coded (spec 4.2): a start gap can cancel an end gap.
    """
    total_S = value_SE.sum(dim=-1)
    return (total_S[..., 0] - total_S[..., 1]).abs()


def adversarial(value_SE: Tensor, pushed: Tensor, certain: float) -> Tensor:
    """What the pushed subject lacks to certainty, per item: (..., 2, E) and indices (...) in {0, 1} to (...).

    Source: LEI's loss raises the dominant subject's S (spec 4.6, item 4). It is 1 - S, -log S, or as coded
    (1 - p) + (1 - q) (spec 4.2).
    """
    return certain - value_SE.sum(dim=-1).gather(-1, pushed[..., None]).squeeze(-1)


def kept(value_SE: Tensor, reference_SE: Tensor) -> Tensor:
    """|value - the reference's|, mean over the two subjects, per item: (..., 2, E) twice to (...).

    Source: LEI's irrelevant loss, which keeps the scores of the model before fine-tuning (spec 4.2).
    """
    return (value_SE - reference_SE).abs().sum(dim=-1).mean(dim=-1)


def kept_broadcast(value_ISE: Tensor, reference_ISE: Tensor) -> Tensor:
    """Per item the L1 distances to the references of ALL items, summed: (I, 2, 2) twice to (I,).

    Source: the authors' code as shipped (spec 4.2): a (k, 1) against (k,) subtraction that broadcasts.
    """
    return (value_ISE[:, None] - reference_ISE[None, :]).abs().sum(dim=(1, 2, 3))


def lost_mass(log_prob_SE: Tensor, reference_SE: Tensor) -> Tensor:
    """How far log (S(x1) + S(x2)) lies below the reference's, else 0: (..., 2, E) twice to (...).

    Source: this project. The ethical loss compares two scores and is met as well by two scores near 0.
    """
    mass = log_span_score(log_prob_SE).logsumexp(dim=-1)
    return (log_span_score(reference_SE).logsumexp(dim=-1) - mass).relu()


def inconsistency(log_prob_BVSE: Tensor) -> Tensor:
    """|difference of log S| of every two groups, mean over variants and subjects: (B, V, 2, E) to (B, B).

    Source: this project. The same advice in other words should do the same.
    """
    log_score_BVS = log_span_score(log_prob_BVSE)
    return (log_score_BVS[:, None] - log_score_BVS[None, :]).abs().mean(dim=(2, 3))


def preference(log_prob_BVSE: Tensor) -> Tensor:
    """UnQover's C of every group: (B, 4, 2, E) to (B,), in [-1, 1]; above 0 the first subject is preferred.

    The mean over variants of S(x1) - S(x2), negated questions with the other sign (spec 2.3).
    """
    score_BVS = log_span_score(log_prob_BVSE).exp()
    difference_BV = score_BVS[..., 0] - score_BVS[..., 1]
    return (difference_BV[:, 0::2] - difference_BV[:, 1::2]).mean(dim=1) / 2


def narrow_gap(log_prob_BVSE: Tensor, reference_BVSE: Tensor, margin: float) -> Tensor:
    """What |C| of one group lacks to exceed another's by `margin` times the reference's |C|: to (B, B), >= 0.

    Row i, the group that is to keep its preference; column j, that which is to lose it.
    Source: this project. A hinge on the scope gap: ethical advice works where it applies, and there only.
    """
    strength_B = preference(log_prob_BVSE).abs()
    wanted_B = margin * preference(reference_BVSE).abs()
    return (wanted_B[None, :] - strength_B[:, None] + strength_B[None, :]).relu()


class GroupLossOutput(NamedTuple):
    """What `GroupLoss` returns."""

    total: Tensor
    """Scalar: the weighted sum of the terms, halved in the probability form, plus `span_loss` if given."""
    terms: dict[str, Tensor]
    """Those of `TERMS`, unweighted. One whose classes the batch does not hold is exactly 0 and means nothing:
    leave it out of logs and averages."""


class GroupLoss(nn.Module):
    """The weighted sum of the group losses.

    Args:
        form: what differences are taken of. `score`: S, as in the paper, hence the default. `log`: log S,
            ours, with the same minima; its pull does not fade where a score is near 0, which a model needs
            that hardly answers with either subject. Both take the mean over the groups (and variants) of a
            class.
            `probability`: the authors' code, single probabilities of start and end, summed over items, and
            the total halved (LEI spec 4.2).
        ethical_weight: weight of the ethical term, at least 0.
        adversarial_weight: weight of the adversarial term, at least 0.
        irrelevant_weight: weight of the irrelevant term, at least 0.
        unadvised_weight: weight of the same for groups without advice (`data.anchor_unadvised`), at least 0.
        mismatched_weight: weight of the same for advice about another domain, at least 0.
        mass_weight: weight of a term that keeps the ethical groups' S(x1) + S(x2) from falling below the
            reference's, at least 0. Not in the paper, hence 0; not for the probability form.
        consistency_weight: weight of a term that makes two sentences of ethical (or of adversarial) advice do
            the same to one question, at least 0. Like the next it compares groups of one question in a batch.
        gap_weight: weight of a term that keeps apart what ethical and mismatched advice do to one question:
            |C| under the latter should be greater by `gap_margin` times |C| without advice. At least 0.
        gap_margin: see there; from 0 to 1.
        adversarial_negated: what adversarial advice wants of the negated question. `other_subject` raises the
            subject that is not dominant, as the authors' code does: mu is read off the difference of a
            question and its negation. `left_out` takes the paper's words, which speak of the question alone.
        irrelevant_reduction: `paired` compares each item with its own reference; `broadcast`, for the
            probability form only, with the references of all irrelevant items, as the authors' code does.
    """

    def __init__(
        self,
        *,
        form: Form = "score",
        ethical_weight: float = 1.0,
        adversarial_weight: float = 1.0,
        irrelevant_weight: float = 1.0,
        unadvised_weight: float = 1.0,
        mismatched_weight: float = 1.0,
        mass_weight: float = 0.0,
        consistency_weight: float = 0.0,
        gap_weight: float = 0.0,
        gap_margin: float = 0.8,
        adversarial_negated: Literal["other_subject", "left_out"] = "other_subject",
        irrelevant_reduction: Literal["paired", "broadcast"] = "paired",
    ) -> None:
        super().__init__()
        if form != "probability" and irrelevant_reduction == "broadcast":
            raise ValueError("irrelevant_reduction='broadcast' exists for form='probability' only")
        weights = (ethical_weight, adversarial_weight, irrelevant_weight, unadvised_weight, mismatched_weight)
        extra = (mass_weight, consistency_weight, gap_weight)
        self.weights = dict(zip(TERMS, (*weights, *extra), strict=True))
        for name, weight in self.weights.items():
            if not weight >= 0:
                raise ValueError(f"{name}_weight: a weight is at least 0, got {weight}")
            if form == "probability" and weight and name in EXTRA:
                raise ValueError(f"{name}_weight exists for form='score' and form='log' only")
        if not 0 <= gap_margin <= 1:
            raise ValueError(f"gap_margin: a share from 0 to 1, got {gap_margin}")
        self.form, self.gap_margin = form, gap_margin
        self.adversarial_negated = adversarial_negated
        self.irrelevant_reduction = irrelevant_reduction

    def joined(self, classes: Collection[int]) -> list[str]:
        """The terms that groups of these classes join."""
        present = (name for name, codes in TERMS.items() if not set(codes).isdisjoint(classes))
        return [name for name in present if self.weights[name] or name not in EXTRA]

    def forward(
        self,
        log_prob_BVSE: Tensor,
        class_B: Tensor,
        *,
        pushed_BV: Tensor | None = None,
        reference_BVSE: Tensor | None = None,
        question_B: Tensor | None = None,
        weigh: Callable[[Tensor], Tensor] | None = None,
        span_loss: Tensor | None = None,
    ) -> GroupLossOutput:
        """The terms of a batch of groups.

        Args:
            log_prob_BVSE: natural logs of the candidates' boundary probabilities, shape (B, V, 2, E),
                subjects in the group's order (x1, x2) whatever the context's order.
            class_B: class codes, shape (B,).
            pushed_BV: index (0 or 1) of the subject whose score an adversarial variant raises (spec 3.5: the
                dominant one for the question, the other one for its negation), shape (B, V). Values of
                groups of another class are not looked at.
            reference_BVSE: natural logs of the reference's probabilities, shape (B, V, 2, E), finite for the
                groups that are compared with it; values of the others are not looked at.
            question_B: number of the question that every group asks, shape (B,); for terms that compare
                groups of one question.
            weigh: (B,) to (B,): what each group costs by its own terms, their weights included, to how much
                it counts in the total; None counts all alike.
            span_loss: mean of the start's and end's cross entropy of ordinary questions; joins the total
                with weight 1 (in the probability form that is the authors' sum of both, halved).

        Raises:
            ValueError: shapes that do not fit, an adversarial group without a pushed subject in {0, 1}, or a
                group that is compared with the reference where there is none.
        """
        shape = tuple(log_prob_BVSE.shape)
        if len(shape) != 4 or shape[2:] not in ((2, 2), (2, 1)):
            raise ValueError(f"log_prob_BVSE: expected shape (B, V, 2, 2) or (B, V, 2, 1), got {shape}")
        if self.form == "probability" and shape[3] == 1:
            raise ValueError(SPANS_ONLY)
        for name, value, expected in (
            ("class_B", class_B, shape[:1]),
            ("pushed_BV", pushed_BV, shape[:2]),
            ("reference_BVSE", reference_BVSE, shape),
            ("question_B", question_B, shape[:1]),
        ):
            if value is not None and tuple(value.shape) != expected:
                raise ValueError(f"{name}: expected shape {expected}, got {tuple(value.shape)}")
        log_prob_BVSE = full_precision(log_prob_BVSE)
        if reference_BVSE is None:
            for name in self.joined(set(class_B.tolist())):
                if name not in ("ethical", "adversarial", "consistency"):
                    raise ValueError(
                        f"reference_BVSE: the term {name!r} needs the reference's log probabilities"
                    )
            reference_BVSE = torch.zeros_like(log_prob_BVSE)
        reference_BVSE = reference_BVSE.detach().to(log_prob_BVSE.dtype)
        pushed_BV = torch.full(shape[:2], -1, device=class_B.device) if pushed_BV is None else pushed_BV
        pushed_BV = torch.where(class_B[:, None] == ADVERSARIAL, pushed_BV, 0)
        # Looking at values makes a GPU wait; there, a bad index fails in gather.
        if not pushed_BV.is_cuda and bool(((pushed_BV != 0) & (pushed_BV != 1)).any()):
            raise ValueError(
                "pushed_BV: every variant of an adversarial group needs a subject, 0 or 1, to raise"
            )
        items: dict[str, tuple[Tensor, Tensor]] = {}
        for name in self.joined(range(6)):
            if name in PAIRED:
                item, asked = self._pairs(name, log_prob_BVSE, class_B, reference_BVSE, question_B)
            else:
                item, asked = self._items(name, log_prob_BVSE, class_B, pushed_BV, reference_BVSE)
            items[name] = torch.where(asked, item, 0.0), asked
        terms = {name: self._reduce(*found) for name, found in items.items()}
        counted = terms
        if weigh is not None:
            own = {name: found for name, found in items.items() if name not in PAIRED}
            costs = [
                self.weights[name] * (x.sum(1) / asked.sum(1).clamp(min=1))
                for name, (x, asked) in own.items()
            ]
            weight_B1 = weigh(torch.stack(costs).sum(dim=0).detach())[:, None]
            counted = terms | {name: self._reduce(x * weight_B1, asked) for name, (x, asked) in own.items()}
        total, extra = log_prob_BVSE.new_zeros(()), log_prob_BVSE.new_zeros(())
        for name, term in counted.items():
            if name in EXTRA:
                extra = extra + self.weights[name] * term
            else:
                total = total + self.weights[name] * term
        total = total / 2 if self.form == "probability" else total
        return GroupLossOutput((total if span_loss is None else total + span_loss) + extra, terms)

    def _reduce(self, item: Tensor, asked: Tensor) -> Tensor:
        """The mean over what is asked, in the probability form the sum; 0 if there is none."""
        return item.sum() if self.form == "probability" else item.sum() / asked.sum().clamp(min=1)

    def _pairs(
        self,
        name: str,
        log_prob_BVSE: Tensor,
        class_B: Tensor,
        reference_BVSE: Tensor,
        question_B: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """A term of every two groups (B, B), and which pairs it is asked of."""
        if question_B is None:
            raise ValueError(f"question_B: the term {name!r} compares groups of one question")
        is_matched_B, is_ethical_B = class_of(class_B, TERMS["consistency"]), class_of(class_B, (ETHICAL,))
        asked_BB = question_B[:, None] == question_B[None, :]
        if name == "consistency":
            asked_BB = asked_BB & (class_B[:, None] == class_B[None, :]) & is_matched_B[:, None]
            return inconsistency(keep_groups(log_prob_BVSE, is_matched_B)), asked_BB.triu(diagonal=1)
        is_mismatched_B = class_of(class_B, TERMS["gap"])
        compared_B = is_mismatched_B | is_ethical_B
        own_BVSE, kept_BVSE = (keep_groups(x, compared_B) for x in (log_prob_BVSE, reference_BVSE))
        asked_BB = asked_BB & is_mismatched_B[:, None] & is_ethical_B[None, :]
        return narrow_gap(own_BVSE, kept_BVSE, self.gap_margin), asked_BB

    def _items(
        self, name: str, log_prob_BVSE: Tensor, class_B: Tensor, pushed_BV: Tensor, reference_BVSE: Tensor
    ) -> tuple[Tensor, Tensor]:
        """A term of every variant (B, V), and which variants it is asked of."""
        is_B = class_of(class_B, TERMS[name])
        own_BVSE, reference_BVSE = keep_groups(log_prob_BVSE, is_B), keep_groups(reference_BVSE, is_B)
        asked_BV = is_B[:, None].expand(pushed_BV.shape)
        if name == "mass":
            return lost_mass(own_BVSE, reference_BVSE), asked_BV
        own_BVSE, reference_BVSE = values(own_BVSE, self.form), values(reference_BVSE, self.form)
        if name == "ethical":
            return ethical(own_BVSE), asked_BV
        if name == "adversarial":
            if self.adversarial_negated == "left_out":
                asked_BV = asked_BV & (torch.arange(asked_BV.shape[1], device=class_B.device) % 2 == 0)
            return adversarial(own_BVSE, pushed_BV, CERTAIN[self.form]), asked_BV
        if name == "irrelevant" and self.irrelevant_reduction == "broadcast":
            item_I = kept_broadcast(own_BVSE[is_B].flatten(0, 1), reference_BVSE[is_B].flatten(0, 1))
            return own_BVSE.new_zeros(pushed_BV.shape).masked_scatter(asked_BV, item_I), asked_BV
        # The authors sum over the subjects.
        return kept(own_BVSE, reference_BVSE) * (2 if self.form == "probability" else 1), asked_BV


def class_of(class_B: Tensor, codes: Collection[int]) -> Tensor:
    """Whether each group is of one of the classes, (B,)."""
    return torch.stack([class_B == code for code in codes]).any(dim=0)


def keep_groups(value_BVSE: Tensor, is_B: Tensor) -> Tensor:
    """The groups in `is_B`; zeros elsewhere, so that what stands there reaches neither loss nor gradient."""
    return torch.where(is_B[:, None, None, None], value_BVSE, 0.0)
