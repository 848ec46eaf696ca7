"""Group DRO: what is learned worst counts most (Sagawa et al. 2020, Distributionally Robust Neural Networks).

Shape letters: K cells, such as (domain, class of advice).
"""

from __future__ import annotations

import torch
from torch import Tensor


def exponentiated(weight_K: Tensor, cost_K: Tensor, present_K: Tensor, step: float) -> Tensor:
    """Weights of cells after a step of exponentiated gradient ascent, w <- w exp(step cost): to (K,).

    The cells of a step share what they weighed together before, the others keep their weight: the authors'
    Algorithm 1, whose normalisation is over all groups, with several of them and not all in a step.

    Args:
        weight_K: weights before, greater than 0; all 1 at first.
        cost_K: mean cost of each cell's members in this step, not looked at where there are none.
        present_K: which cells have members in this step.
        step: size of the step, at least 0.
    """
    powers_K = weight_K.log() + step * torch.where(present_K, cost_K, 0.0)
    shares_K = powers_K.masked_fill(~present_K, float("-inf")).softmax(dim=0)
    return torch.where(present_K, torch.where(present_K, weight_K, 0.0).sum() * shares_K, weight_K)
