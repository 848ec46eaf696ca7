"""losses/group_dro: a naive loop, what stays, and the cost that grows heavy."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from losses.group_dro import exponentiated

CELLS = st.lists(st.tuples(st.floats(0.01, 9), st.floats(0, 50), st.booleans()), min_size=1, max_size=9)


@given(cells=CELLS, step=st.floats(0, 2))
def test_weights_follow_costs_as_in_a_naive_loop(cells: list[tuple[float, float, bool]], step: float) -> None:
    weight, cost, present = (torch.tensor(column) for column in zip(*cells, strict=True))
    cost[~present] = math.nan
    found = exponentiated(weight.double(), cost.double(), present, step).tolist()
    sized = [w * math.exp(step * c) if here else 0.0 for w, c, here in cells]
    together = sum(w for w, _, here in cells if here)
    wanted = [together * s / sum(sized) if here else w for s, (w, _, here) in zip(sized, cells, strict=True)]
    assert found == pytest.approx(wanted, rel=1e-5)
