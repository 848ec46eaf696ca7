"""The base of metrics that accumulate sums: states stay in float64."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torchmetrics import Metric


class SumMetric(Metric):
    """A torchmetrics metric whose states follow the model to its device but stay in float64.

    `model.to(torch.bfloat16)` would turn float64 sums into bfloat16, where 1000 + 1 is 1000.
    torchmetrics guards `.half()` and `.bfloat16()`, not `.to(dtype)`, which is what Lightning's
    "bf16-true" calls.
    """

    full_state_update = False

    def add_sum(self, name: str, *shape: int) -> None:
        """Declare a state of zeros, float64, that is summed over processes."""
        self.add_state(name, torch.zeros(shape).double(), dist_reduce_fx="sum")
        # The copy that `reset` restores is a single zero, expanded: a full one would double the
        # memory.
        self._defaults[name] = torch.zeros(()).double().expand(shape)

    def _apply(
        self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = ""
    ) -> torch.nn.Module:
        def move_only(value: Tensor) -> Tensor:
            return value.to(fn(value.new_empty(0)).device)

        return super()._apply(move_only, exclude_state)
