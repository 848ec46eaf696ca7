"""The heads and what is read off them, against naive loops over tokens."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from models.heads.answers import LOW, RationaleHeads
from models.heads.xlnet import XLNetAnswerHeads

B, T, D = 3, 7, 8


def hidden(seed: int = 0) -> Tensor:
    return torch.randn(B, T, D, generator=torch.Generator().manual_seed(seed))


def loud(module: nn.Module) -> None:
    """Weights large enough that every input matters."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.6)


MASK = torch.tensor([[1] * 7, [1] * 5 + [0] * 2, [0] * 3 + [1] * 4])
CLS = torch.tensor([0, 0, 6])


@torch.no_grad()
def test_rationale_heads_equal_the_equations() -> None:
    heads, h = RationaleHeads(D), hidden()
    loud(heads)
    type_BC, rationale_BT = heads(h, MASK != 0, CLS)
    V, u = heads.rationale[0].weight, heads.rationale[2].weight[0]
    W2, w1 = heads.attention[0].weight, heads.attention[2].weight[0]
    for b in range(B):
        tokens = [t for t in range(T) if MASK[b, t]]
        logit = {t: u @ (V @ h[b, t]).relu() for t in tokens}
        tagged = {t: logit[t].sigmoid() * h[b, t] for t in tokens}
        weight = torch.stack([w1 @ (W2 @ tagged[t]).relu() for t in tokens]).softmax(0)
        pooled = sum((a * tagged[t] for a, t in zip(weight, tokens, strict=True)), torch.zeros(D))
        z = torch.cat((pooled, h[b, CLS[b]]))
        expected = torch.cat((heads.yes_no.weight @ z, heads.unknown.weight @ z))
        torch.testing.assert_close(type_BC[b], expected)
        for t in range(T):
            assert float(rationale_BT[b, t]) == (
                pytest.approx(float(logit[t]), abs=1e-5) if t in logit else LOW
            )


@torch.no_grad()
def test_xlnet_heads_equal_the_equations() -> None:
    heads, h = XLNetAnswerHeads(D).eval(), hidden()
    loud(heads)
    allowed_BT = MASK != 0
    allowed_BT[:, 4] = False
    start_BK = torch.tensor([[0, 3], [1, 2], [3, 6]])
    start_BT = heads.start_logits(h, allowed_BT)
    end_BKT = heads.end_logits(h, start_BK, allowed_BT)
    kinds = heads.kind_logits(h, start_BT, CLS)
    for b in range(B):
        start = {
            t: heads.start.weight[0] @ h[b, t] + heads.start.bias[0] for t in range(T) if allowed_BT[b, t]
        }
        weight = torch.stack(list(start.values())).softmax(0)
        mean = sum((p * h[b, t] for p, t in zip(weight, start, strict=True)), torch.zeros(D))
        state = torch.cat((mean, h[b, CLS[b]]))
        v = (heads.answer_state.weight @ state + heads.answer_state.bias).tanh()
        for found, layer in zip(kinds, (heads.types, heads.number, heads.option), strict=True):
            torch.testing.assert_close(found[b], layer.weight @ v + layer.bias)
        for t in range(T):
            assert float(start_BT[b, t]) == (pytest.approx(float(start[t]), abs=1e-5) if t in start else LOW)
            for k in range(2):
                pair = torch.cat((h[b, t], h[b, start_BK[b, k]]))
                state = (heads.end_state.weight @ pair + heads.end_state.bias).tanh()
                state = layer_norm(state, (D,), heads.end_norm.weight, heads.end_norm.bias)
                expected = float(heads.end.weight[0] @ state + heads.end.bias[0]) if t in start else LOW
                assert float(end_BKT[b, k, t]) == pytest.approx(expected, abs=1e-4)
    assert [kind.shape[1] for kind in kinds] == [3, 12, 3]
