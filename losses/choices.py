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


def choice_loss(logits_BN: Tensor, label_B: Tensor, uniform_B: Tensor, probe_weight: float = 1.0) -> Tensor:
    """Weighted mean of `choice_cross_entropy`: questions with a right choice weigh 1, the others
    `probe_weight`; 0 where nothing weighs anything."""
    loss_B = choice_cross_entropy(logits_BN, label_B, uniform_B)
    weight_B = torch.where(uniform_B, probe_weight, 1.0).to(loss_B)
    return (loss_B * weight_B).sum() / weight_B.sum().clamp_min(torch.finfo(loss_B.dtype).tiny)
