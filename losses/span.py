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
    """
    nats = cross_entropy(logits_BT, position_B, ignore_index=IGNORE_INDEX, reduction="sum")
    return nats / (position_B != IGNORE_INDEX).sum().clamp(min=1)


def span_cross_entropy(
    start_logits_BT: Tensor, end_logits_BT: Tensor, start_B: Tensor, end_B: Tensor
) -> Tensor:
    """Half the sum of the start's and the end's mean cross entropy, in nats; a scalar.

    Source: extractive SQuAD fine-tuning (Devlin et al. 2019, section 4.2). LEI's authors add the two means
    and halve the total of all their losses (spec 4.2), which comes to the same.

    Args:
        start_logits_BT, end_logits_BT: shape (B, T).
        start_B, end_B: positions of the answer's first and last token, shape (B,), or `IGNORE_INDEX`.
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
