"""Cross entropy of an answer span.

Shape letters: B questions, T positions.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

IGNORE_INDEX = -100
"""A start or end position that no loss sees, such as an answer that fell outside the window."""


def mask_logits(logits_BT: Tensor, allowed_BT: Tensor | None) -> Tensor:
    """Logits in float32 (float64 stays) with the positions that are not allowed at minus infinity.

    Args:
        logits_BT: shape (B, T), any float type.
        allowed_BT: boolean, shape (B, T), True where an answer may begin or end; None allows all.

    Raises:
        ValueError: the two shapes differ.
    """
    logits_BT = logits_BT if logits_BT.dtype == torch.float64 else logits_BT.float()
    if allowed_BT is None:
        return logits_BT
    if allowed_BT.shape != logits_BT.shape:
        raise ValueError(f"mask of shape {tuple(allowed_BT.shape)} for logits {tuple(logits_BT.shape)}")
    return logits_BT.masked_fill(~allowed_BT.bool(), float("-inf"))


def position_cross_entropy(logits_BT: Tensor, position_B: Tensor, ignore_index: int = IGNORE_INDEX) -> Tensor:
    """Mean of -log softmax(logits)[position] over the positions that count, in nats; a scalar.

    Exactly 0, with zero gradients, where every position is ignored.

    Raises:
        ValueError: a position that counts lies outside the row or on a masked (minus infinity) logit.
    """
    counted_B = position_B != ignore_index
    safe_B = torch.where(counted_B, position_B, 0)
    on_host = not logits_BT.is_cuda  # looking at values would make a GPU wait
    if on_host and bool(((safe_B < 0) | (safe_B >= logits_BT.shape[1])).any()):
        raise ValueError(
            f"a span position lies outside the {logits_BT.shape[1]} positions of its row; "
            f"mark answers outside the window with ignore_index={ignore_index}"
        )
    picked_B = logits_BT.gather(1, safe_B[:, None]).squeeze(1)
    if on_host and bool((counted_B & torch.isneginf(picked_B)).any()):
        raise ValueError("a span position lies where the mask allows no answer")
    # A row without a counted position may be masked throughout: it must not bring NaN into the gradient.
    safe_logits_BT = torch.where(counted_B[:, None], logits_BT, 0.0)
    nats_B = cross_entropy(safe_logits_BT, safe_B, reduction="none")
    return torch.where(counted_B, nats_B, 0.0).sum() / counted_B.sum().clamp(min=1)


def span_cross_entropy(
    start_logits_BT: Tensor,
    end_logits_BT: Tensor,
    start_B: Tensor,
    end_B: Tensor,
    *,
    allowed_BT: Tensor | None = None,
    ignore_index: int = IGNORE_INDEX,
) -> Tensor:
    """Half the sum of the start's and the end's mean cross entropy, in nats; a scalar.

    Source: extractive SQuAD fine-tuning (Devlin et al. 2019, section 4.2). LEI's authors add the two means
    and halve the total of all their losses (spec 4.2), which comes to the same.

    Args:
        start_logits_BT, end_logits_BT: shape (B, T).
        start_B, end_B: positions of the answer's first and last token, shape (B,), or `ignore_index`.
        allowed_BT: boolean, shape (B, T); the softmax runs over these positions only. None: over all.
        ignore_index: the position that does not count.

    Raises:
        ValueError: a position that counts is outside the row or masked.
    """
    start = position_cross_entropy(mask_logits(start_logits_BT, allowed_BT), start_B, ignore_index)
    end = position_cross_entropy(mask_logits(end_logits_BT, allowed_BT), end_B, ignore_index)
    return (start + end) / 2
