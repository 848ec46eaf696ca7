"""The base of metrics that accumulate sums."""

import torch
from torchmetrics import Metric


class SumMetric(Metric):
    """A torchmetrics metric whose states are sums in float64, on any device. It is no part of a
    model, whose `.to(torch.bfloat16)` would convert them: there 1000 + 1 is 1000.
    """

    full_state_update = False

    def add_sum(self, name: str, *shape: int) -> None:
        """Declare a state of zeros, float64, that is summed over processes."""
        self.add_state(name, torch.zeros(shape).double(), dist_reduce_fx="sum")
        # The copy that `reset` restores is a single zero, expanded: a full one would double the
        # memory.
        self._defaults[name] = torch.zeros(()).double().expand(shape)
