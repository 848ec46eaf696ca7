"""Cross-entropy over the choices of a question, and to the uniform distribution where none is right.

Shape letters: B batch (questions), N choices of a question.
"""

from __future__ import annotations

import torch
from torch import Tensor


def choice_cross_entropy(logits_BN: Tensor, label_B: Tensor, uniform_B: Tensor) -> Tensor:
    """Cross-entropy (B,) of every question, in nats, float32.

    Args:
        logits_BN: one number a choice.
        label_B: slot of the right choice.
        uniform_B: True where all choices should get the probability 1 / N instead: the mean over the choices
            of -log p, which is at least log N.

    Source: probes spec B1; the uniform target is ours.
    """
    log_prob_BN = logits_BN.float().log_softmax(-1)
    own_B = -log_prob_BN.gather(1, label_B.unsqueeze(1)).squeeze(1)
    return torch.where(uniform_B, -log_prob_BN.mean(1), own_B)


def choice_gap(logits_BN: Tensor, label_B: Tensor) -> Tensor:
    """By how much the other choices of every question differ: log p of the likeliest less that of the least
    likely, (B,) float32, in nats; 0 with a single other one.

    Where the label says that the text does not tell, this is |log p(x1) - log p(x2)| of the two people: the
    ethical loss of LEI (spec 2.3, in logarithms) on BBQ's ambiguous questions. Ours.
    """
    others_BN = torch.arange(logits_BN.shape[1], device=logits_BN.device) != label_B.unsqueeze(1)
    low, high = float("-inf"), float("inf")
    logits_BN = logits_BN.float()  # the softmax's denominator cancels
    return logits_BN.masked_fill(~others_BN, low).amax(1) - logits_BN.masked_fill(~others_BN, high).amin(1)


def choice_loss(
    logits_BN: Tensor,
    label_B: Tensor,
    uniform_B: Tensor,
    unknown_B: Tensor,
    *,
    probe_weight: float = 1.0,
    gap_weight: float = 0.0,
) -> Tensor:
    """Weighted mean of `choice_cross_entropy`: questions with a right choice weigh 1, the others
    `probe_weight`; 0 where nothing weighs anything. To questions of `unknown_B` `gap_weight` times
    `choice_gap` is added."""
    loss_B = choice_cross_entropy(logits_BN, label_B, uniform_B)
    if gap_weight:
        loss_B = loss_B + gap_weight * unknown_B * choice_gap(logits_BN, label_B)
    weight_B = torch.where(uniform_B, probe_weight, 1.0).to(loss_B)
    return (loss_B * weight_B).sum() / weight_B.sum().clamp_min(torch.finfo(loss_B.dtype).tiny)
