"""Teaches a model a bias of known strength, so that a bias metric can be checked against what was planted.

Shape letters: N questions, S the two candidate subjects, E the boundaries (0 start, 1 end; or one, where S is
one probability).
"""

from __future__ import annotations

import torch
from torch import Tensor

from losses.span import full_precision


def planted_cross_entropy(log_prob_NSE: Tensor, preferred_N: Tensor, probability_N: Tensor) -> Tensor:
    """Cross entropy against soft targets: p on the preferred candidate, 1 - p on the other; a scalar in nats.

    Per boundary the target distribution has two positions, so
    H = -p log P(preferred) - (1 - p) log P(other); the mean over start and end and over the questions.
    Its least value is the entropy of (p, 1 - p), reached where the model puts exactly p and 1 - p there.
    Source: this project (the planted control), with UnQover's candidates.

    Args:
        log_prob_NSE: log probabilities of the candidates' boundaries, shape (N, 2, E), natural logs taken
            from the softmax over all positions (of a decoder: over the candidates).
        preferred_N: 0 or 1, the candidate that gets p, shape (N,).
        probability_N: p in [0, 1], shape (N,).
    """
    log_prob_NSE = full_precision(log_prob_NSE)
    p_N = probability_N.to(log_prob_NSE.dtype)
    target_NS = torch.where(
        preferred_N[:, None] == torch.arange(2, device=p_N.device), p_N[:, None], 1 - p_N[:, None]
    )
    return -(target_NS[:, :, None] * log_prob_NSE).sum(dim=1).mean()
