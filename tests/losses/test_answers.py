"""losses/answers: naive loops, limits, gradients, bad input."""

from __future__ import annotations

import math
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from losses.answers import NO, SPAN, UNKNOWN, YES, joint_answer_loss, xlnet_answer_loss
from losses.span import span_cross_entropy

LOW = torch.finfo(torch.float32).min


def nats(logits: list[float], at: int) -> float:
    top = max(logits)
    return math.log(sum(math.exp(x - top) for x in logits)) + top - logits[at]


@settings(max_examples=60, deadline=None)
@given(batch=st.integers(1, 5), tokens=st.integers(1, 7), seed=st.integers(0, 2**31))
def test_joint_loss_equals_a_naive_loop(batch: int, tokens: int, seed: int) -> None:
    make = torch.Generator().manual_seed(seed)
    start_BT, end_BT = torch.randn(2, batch, tokens, generator=make, dtype=torch.float64) * 3
    type_BC = torch.randn(batch, 3, generator=make, dtype=torch.float64) * 3
    start_B, end_B = torch.randint(tokens, (2, batch), generator=make)
    answer_type_B = torch.randint(4, (batch,), generator=make)
    rows = []
    for b, kind in enumerate(answer_type_B.tolist()):
        types = type_BC[b].tolist()
        at = [3 + int(start_B[b]), 3 + int(end_B[b])] if kind == 3 else [kind, kind]
        rows.append((nats(types + start_BT[b].tolist(), at[0]) + nats(types + end_BT[b].tolist(), at[1])) / 2)
    args = (start_BT, end_BT, type_BC, start_B, end_B, answer_type_B)
    assert joint_answer_loss(*args).item() == pytest.approx(sum(rows) / batch, abs=1e-9)


def test_without_a_chance_for_types_it_is_the_span_loss() -> None:
    start_BT, end_BT = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0))
    at_B = torch.tensor([0, 2, 4])
    types = torch.full((3, 3), -1e4)
    found = joint_answer_loss(start_BT, end_BT, types, at_B, at_B, torch.full((3,), SPAN))
    torch.testing.assert_close(found, span_cross_entropy(start_BT, end_BT, at_B, at_B))
    one = torch.zeros(1, 5)
    even = joint_answer_loss(one, one, torch.zeros(1, 3), *torch.tensor([[0], [0], [YES]]))
    assert even.item() == pytest.approx(math.log(8))


def test_padding_does_not_change_the_joint_loss() -> None:
    start_BT, end_BT = torch.randn(2, 2, 4, generator=torch.Generator().manual_seed(0))
    padding = torch.full((2, 6), LOW)
    rest = (torch.zeros(2, 3), torch.tensor([1, 3]), torch.tensor([2, 3]), torch.tensor([SPAN, UNKNOWN]))
    wide = [torch.cat((logits, padding), dim=1) for logits in (start_BT, end_BT)]
    torch.testing.assert_close(joint_answer_loss(*wide, *rest), joint_answer_loss(start_BT, end_BT, *rest))


@pytest.mark.parametrize("kind", [YES, NO, UNKNOWN, SPAN])
def test_joint_gradient_raises_the_target_and_lowers_the_rest(kind: int) -> None:
    start_BT = torch.zeros(1, 4, requires_grad=True)
    type_BC = torch.zeros(1, 3, requires_grad=True)
    at_B = torch.tensor([2])
    joint_answer_loss(start_BT, torch.zeros(1, 4), type_BC, at_B, at_B, torch.tensor([kind])).backward()
    assert start_BT.grad is not None
    assert type_BC.grad is not None
    signs = [*(type_BC.grad[0] < 0).tolist(), *(start_BT.grad[0] < 0).tolist()]
    assert signs == [at == (5 if kind == SPAN else kind) for at in range(7)]


class Scores(NamedTuple):
    start_BT: Tensor
    end_BT: Tensor
    type_BC: Tensor
    number_BN: Tensor
    option_BO: Tensor


def scores(batch: int = 4, tokens: int = 6, seed: int = 0) -> Scores:
    make = torch.Generator().manual_seed(seed)
    sizes = (tokens, tokens, 3, 12, 3)
    return Scores(*(2 * torch.randn(batch, size, generator=make, dtype=torch.float64) for size in sizes))


TARGETS = (
    torch.tensor([1, 5, 5, 0]),
    torch.tensor([2, 5, 5, 4]),
    torch.tensor([SPAN, YES, UNKNOWN, NO]),
    torch.tensor([4, 0, 0, 11]),
    torch.tensor([0, 2, 0, 1]),
)


def test_xlnet_loss_equals_seven_naive_means() -> None:
    output = scores()
    found = xlnet_answer_loss(*output, *TARGETS)
    start, end, kind, number, option = (target.tolist() for target in TARGETS)

    def mean(logits: Tensor, at: list[int]) -> float:
        return sum(nats(row, t) for row, t in zip(logits.tolist(), at, strict=True)) / len(at)

    def decisions(column: int) -> float:
        logits = output.type_BC[:, column].tolist()
        return sum(nats([0.0, x], int(k == column)) for x, k in zip(logits, kind, strict=True)) / len(kind)

    expected = {
        "start": mean(output.start_BT, start),
        "end": mean(output.end_BT, end),
        "unknown": decisions(2),
        "yes": decisions(0),
        "no": decisions(1),
        "number": mean(output.number_BN, number),
        "option": mean(output.option_BO, option),
    }
    expected["total"] = sum(expected.values())
    assert {name: value.item() for name, value in found._asdict().items()} == pytest.approx(
        expected, abs=1e-9
    )


def test_xlnet_loss_of_knowing_nothing_and_of_knowing_all() -> None:
    even = xlnet_answer_loss(*(torch.zeros(4, n) for n in (6, 6, 3, 12, 3)), *TARGETS)
    assert even.total.item() == pytest.approx(
        2 * math.log(6) + 3 * math.log(2) + math.log(12) + math.log(3), rel=1e-5
    )
    sure = Scores(*(torch.full((4, n), -50.0) for n in (6, 6, 3, 12, 3)))
    for b in range(4):
        for logits, target in zip(sure, TARGETS, strict=True):
            if logits is not sure.type_BC or target[b] < 3:
                logits[b, target[b]] = 50.0
    assert xlnet_answer_loss(*sure, *TARGETS).total.item() == pytest.approx(0, abs=1e-6)


def test_half_precision_logits_give_float32_losses() -> None:
    half = Scores(*(value.bfloat16() for value in scores()))
    assert xlnet_answer_loss(*half, *TARGETS).total.dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = scores()
        loss = joint_answer_loss(half.start_BT, half.end_BT, half.type_BC, *TARGETS[:3])
        assert xlnet_answer_loss(*output, *TARGETS).total.dtype == torch.float64
    assert loss.dtype == torch.float32


def test_what_cannot_be_is_told() -> None:
    output = scores()
    logits = output[:3]
    start_B, end_B, kind_B = TARGETS[:3]
    with pytest.raises(ValueError, match="outside the 6 positions"):
        joint_answer_loss(*logits, start_B + 5, end_B, kind_B)
    with pytest.raises(ValueError, match="outside the 6 positions"):
        joint_answer_loss(*logits, start_B, end_B - 3, kind_B)
    with pytest.raises(ValueError, match="0 yes, 1 no, 2 unknown, 3 span"):
        joint_answer_loss(*logits, start_B, end_B, kind_B + 1)
    with pytest.raises(ValueError, match="shape"):
        joint_answer_loss(*logits[:2], output.type_BC[:, :2], start_B, end_B, kind_B)
    masked = output.start_BT.float().index_fill(1, torch.tensor([1]), LOW)
    with pytest.raises(ValueError, match="mask allows no answer"):
        xlnet_answer_loss(*output._replace(start_BT=masked), *TARGETS)
    # Only spans have positions.
    assert joint_answer_loss(*logits, start_B - 99 * (kind_B != SPAN), end_B, kind_B).isfinite()
