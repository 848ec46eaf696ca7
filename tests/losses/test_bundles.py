"""The loss of bundles: which of two variants of a question has no answer."""

import itertools
import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from interventune.losses.answers import bundle_loss

LOGITS = st.lists(st.floats(-4, 4), min_size=7, max_size=7)
ROW = st.tuples(st.integers(0, 2), st.booleans(), LOGITS)


@given(st.lists(ROW, min_size=1, max_size=6))
def test_it_is_that_of_a_naive_loop(rows: list[tuple[int, bool, list[float]]]) -> None:
    """And its gradient raises unknown where it is right, and lowers it in the other variant."""
    bundles, unknown, values = zip(*rows, strict=True)
    logits = torch.tensor(values, dtype=torch.float64)
    start, end, types = logits[:, :2], logits[:, 2:4], logits[:, 4:].requires_grad_()
    loss = bundle_loss(start, end, types, torch.tensor(unknown), torch.tensor(bundles))
    odds = [
        2 * row[6] - sum(math.log(sum(map(math.exp, row[at : at + 2]))) for at in (0, 2))
        for row in values
    ]
    every = itertools.product(range(len(rows)), repeat=2)
    pairs = [(i, j) for i, j in every if bundles[i] == bundles[j] and unknown[j] > unknown[i]]
    naive = sum(math.log1p(math.exp(odds[i] - odds[j])) for i, j in pairs) / len(rows)
    loss.backward()
    assert math.isclose(loss.item(), naive, abs_tol=1e-9)
    assert types.grad is not None
    signs = types.grad[:, 2].sign().tolist()
    paired = {*itertools.chain(*pairs)}
    assert signs == [(-1 if unknown[i] else 1) if i in paired else 0 for i in range(len(rows))]
    assert not types.grad[:, :2].any()
