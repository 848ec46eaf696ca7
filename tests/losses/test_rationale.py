"""losses/rationale: a naive loop, limits, padding."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from losses.rationale import rationale_tagging_loss

LOW = torch.finfo(torch.float32).min


@settings(max_examples=60, deadline=None)
@given(batch=st.integers(1, 4), tokens=st.integers(1, 7), seed=st.integers(0, 2**31))
def test_it_equals_a_naive_loop(batch: int, tokens: int, seed: int) -> None:
    make = torch.Generator().manual_seed(seed)
    logits_BT = torch.randn(batch, tokens, generator=make, dtype=torch.float64) * 3
    target_BT, mask_BT = torch.rand(2, batch, tokens, generator=make) < 0.5
    values = []
    for logit, target, token in zip(
        logits_BT.flatten().tolist(), target_BT.flatten().tolist(), mask_BT.flatten().tolist(), strict=True
    ):
        p = 1 / (1 + math.exp(-logit))
        if token:
            values.append(-math.log(p if target else 1 - p))
    found = rationale_tagging_loss(logits_BT, target_BT, mask_BT)
    assert found.item() == pytest.approx(sum(values) / max(len(values), 1), abs=1e-9)


def test_it_does_not_depend_on_padding() -> None:
    logits_BT = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    target_BT = torch.tensor([[True, False, False, True]] * 2)
    mask_BT = torch.ones(2, 4)
    wide = [
        torch.cat((tensor, torch.full((2, 5), value, dtype=tensor.dtype)), dim=1)
        for tensor, value in ((logits_BT, LOW), (target_BT, 0), (mask_BT, 0))
    ]
    narrow = (logits_BT, target_BT, mask_BT)
    torch.testing.assert_close(rationale_tagging_loss(*wide), rationale_tagging_loss(*narrow))


def test_limits_and_gradient() -> None:
    target_BT, mask_BT = torch.tensor([[True, False, False]]), torch.tensor([[1, 1, 0]])
    logits_BT = torch.tensor([[0.0, 0.0, float("-inf")]], requires_grad=True)
    loss = rationale_tagging_loss(logits_BT, target_BT, mask_BT)
    assert loss.item() == pytest.approx(math.log(2))
    loss.backward()
    assert logits_BT.grad is not None
    assert logits_BT.grad.tolist() == [[-0.25, 0.25, 0.0]]
    sure = torch.tensor([[60.0, -60.0, LOW]])
    assert rationale_tagging_loss(sure, target_BT, mask_BT).item() == pytest.approx(0, abs=1e-6)
    assert rationale_tagging_loss(-sure, target_BT, mask_BT).item() == pytest.approx(60)
    assert rationale_tagging_loss(sure, target_BT, 0 * mask_BT).item() == 0
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert rationale_tagging_loss(sure.bfloat16(), target_BT, mask_BT).dtype == torch.float32


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match=r"\(1, 3\)"):
        rationale_tagging_loss(torch.zeros(1, 3), torch.zeros(1, 3).bool(), torch.zeros(1, 4))
