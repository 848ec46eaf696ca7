"""Cross-entropy over the choices of a question.

Shape letters: B batch (questions), N choices of a question.
"""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy


def choice_cross_entropy(logits_BN: Tensor, label_B: Tensor) -> Tensor:
    """Cross-entropy (B,) of every question, in nats, float32.

    Args:
        logits_BN: one logit per choice.
        label_B: index of the right choice.

    Source: the authors' code of Shen and Kejriwal 2022.
    """
    return cross_entropy(logits_BN.float(), label_B, reduction="none")


def choice_gap(logits_BN: Tensor, label_B: Tensor) -> Tensor:
    """Spread of the other choices of every question: log p of the likeliest minus log p of the
    least likely, (B,) float32, in nats; 0 if there is only one other choice.

    Where the label is "unknown", this is |log p(x1) - log p(x2)| of the two people: LEI's ethical
    loss (Zhao et al. 2021, appendix B.2, in logarithms) applied to BBQ's ambiguous questions.
    Source: this project.
    """
    others_BN = torch.arange(logits_BN.shape[1], device=logits_BN.device) != label_B.unsqueeze(1)
    low, high = float("-inf"), float("inf")
    logits_BN = logits_BN.float()  # the softmax's denominator cancels
    return logits_BN.masked_fill(~others_BN, low).amax(1) - logits_BN.masked_fill(
        ~others_BN, high
    ).amin(1)


def choice_loss(
    logits_BN: Tensor, label_B: Tensor, unknown_B: Tensor, *, gap_weight: float = 0.0
) -> Tensor:
    """Mean of `choice_cross_entropy`, plus `gap_weight` times `choice_gap` for questions in
    `unknown_B`.
    """
    loss_B = choice_cross_entropy(logits_BN, label_B)
    if gap_weight:
        loss_B = loss_B + gap_weight * unknown_B * choice_gap(logits_BN, label_B)
    return loss_B.mean()
