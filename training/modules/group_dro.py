"""Weights of the (domain, class of advice) cells of a training set, which follow what is learned worst.

Shape letters: N groups of the set, B of a batch, K cells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from data_modules.schema import Group
from losses.group_dro import exponentiated


class CellWeights:
    """The state of group DRO; equal on all processes.

    Args:
        groups: the training groups; their `domain` and class of advice are the cells.
        step: size of a step; 0 leaves all weights at 1.
    """

    def __init__(self, groups: Sequence[Group], step: float) -> None:
        names = [f"{group.domain or 'any domain'}/{group.advice_class}" for group in groups]
        self.names, self.step = sorted(set(names)), step
        number = {name: k for k, name in enumerate(self.names)}
        self.cell_N = torch.tensor([number[name] for name in names])
        self.weight_K = torch.ones(len(self.names))

    def weigh(self, cost_B: Tensor, group_B: Tensor, summed: Callable[[Tensor], Tensor]) -> Tensor:
        """By how much each group of this step counts, (B,), after the step's costs have moved the weights.

        Args:
            cost_B: what each group costs.
            group_B: its place in the training set.
            summed: sums a tensor over processes.
        """
        self.cell_N, self.weight_K = self.cell_N.to(cost_B.device), self.weight_K.to(cost_B.device)
        cell_B = self.cell_N[group_B]
        is_BK = cell_B[:, None] == torch.arange(len(self.names), device=cost_B.device)
        cost_K, count_K = summed(torch.stack((cost_B, torch.ones_like(cost_B))).float() @ is_BK.float())
        self.weight_K = exponentiated(self.weight_K, cost_K / count_K.clamp(min=1), count_K > 0, self.step)
        return self.weight_K[cell_B]

    def state(self) -> dict[str, float]:
        """The weights by the names of their cells."""
        return dict(zip(self.names, self.weight_K.tolist(), strict=True))

    def load(self, state: dict[str, float]) -> None:
        """Go on with these; a cell that they do not name starts at 1."""
        self.weight_K = torch.tensor([state.get(name, 1.0) for name in self.names])
