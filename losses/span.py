"""Cross entropy of an answer: of the two ends of a span, or of the tokens that a decoder writes.

Shape letters: B questions, T positions.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

IGNORE_INDEX = -100
"""A start or end position that no loss sees, such as an answer that fell outside the window."""


def full_precision(values: Tensor) -> Tensor:
    """The same in float32; float64 stays."""
    return values if values.dtype == torch.float64 else values.float()


def position_cross_entropy(logits_BT: Tensor, position_B: Tensor) -> Tensor:
    """Mean of -log softmax(logits)[position] over the positions that count, in nats; a scalar.

    Exactly 0, with zero gradients, where every position is ignored.

    Raises:
        ValueError: a position that counts lies outside the row or on a masked (minus infinity) logit.
    """
    counted_B = position_B != IGNORE_INDEX
    safe_B = torch.where(counted_B, position_B, 0)
    on_host = not logits_BT.is_cuda  # looking at values would make a GPU wait
    if on_host and bool(((safe_B < 0) | (safe_B >= logits_BT.shape[1])).any()):
        raise ValueError(
            f"a span position lies outside the {logits_BT.shape[1]} positions of its row; "
            f"mark answers outside the window with {IGNORE_INDEX}"
        )
    picked_B = logits_BT.gather(1, safe_B[:, None]).squeeze(1)
    if on_host and bool((counted_B & torch.isneginf(picked_B)).any()):
        raise ValueError("a span position lies where the mask allows no answer")
    # A row without a counted position may be masked throughout: it must not bring NaN into the gradient.
    safe_logits_BT = torch.where(counted_B[:, None], logits_BT, 0.0)
    nats_B = cross_entropy(safe_logits_BT, safe_B, reduction="none")
    return torch.where(counted_B, nats_B, 0.0).sum() / counted_B.sum().clamp(min=1)


def span_cross_entropy(
    start_logits_BT: Tensor, end_logits_BT: Tensor, start_B: Tensor, end_B: Tensor
) -> Tensor:
    """Half the sum of the start's and the end's mean cross entropy, in nats; a scalar.

    Source: extractive SQuAD fine-tuning (Devlin et al. 2019, section 4.2). LEI's authors add the two means
    and halve the total of all their losses (spec 4.2), which comes to the same.

    Args:
        start_logits_BT, end_logits_BT: shape (B, T).
        start_B, end_B: positions of the answer's first and last token, shape (B,), or `IGNORE_INDEX`.

    Raises:
        ValueError: a position that counts is outside the row, or its logit is minus infinity.
    """
    start = position_cross_entropy(full_precision(start_logits_BT), start_B)
    end = position_cross_entropy(full_precision(end_logits_BT), end_B)
    return (start + end) / 2


def written_answer_loss(total_B: Tensor, count_B: Tensor) -> Tensor:
    """Cross entropy of written answers: minus the mean log-probability over all their tokens, in nats.

    Args:
        total_B: sums of the log-probabilities of an answer's tokens.
        count_B: how many tokens that are.
    """
    return -total_B.sum() / count_B.sum()
