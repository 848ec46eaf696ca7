"""losses/span and losses/planted: limits, masks, gradients."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from losses.planted import planted_cross_entropy
from losses.span import IGNORE_INDEX, span_cross_entropy
from models.heads.span import candidate_log_probs


def naive_span_loss(start_BT: Tensor, end_BT: Tensor, start: list[int], end: list[int]) -> float:
    def nats(logits: list[float], at: int) -> float:
        return math.log(sum(map(math.exp, logits))) - logits[at]

    def mean(rows: Tensor, positions: list[int]) -> float:
        values = [
            nats(row, at) for row, at in zip(rows.tolist(), positions, strict=True) if at != IGNORE_INDEX
        ]
        return sum(values) / len(values)

    return (mean(start_BT, start) + mean(end_BT, end)) / 2


def test_span_loss_equals_a_naive_loop_and_skips_ignored_positions() -> None:
    make = torch.Generator().manual_seed(0)
    start_BT, end_BT = torch.randn(2, 4, 6, generator=make, dtype=torch.float64)
    start, end = [0, 5, IGNORE_INDEX, 2], [1, 5, 3, IGNORE_INDEX]
    loss = span_cross_entropy(start_BT, end_BT, torch.tensor(start), torch.tensor(end))
    assert loss.item() == pytest.approx(naive_span_loss(start_BT, end_BT, start, end), abs=1e-12)


def test_nothing_to_learn_is_zero_without_nan_gradients() -> None:
    logits_BT = torch.full((2, 3), float("-inf"), requires_grad=True)
    nothing = torch.full((2,), IGNORE_INDEX)
    loss = span_cross_entropy(logits_BT, logits_BT, nothing, nothing)
    loss.backward()
    assert loss.item() == 0
    assert logits_BT.grad is not None
    assert logits_BT.grad.eq(0).all()


def test_gradient_raises_the_target_and_lowers_the_rest() -> None:
    logits_BT = torch.zeros(1, 4, requires_grad=True)
    span_cross_entropy(logits_BT, logits_BT, torch.tensor([2]), torch.tensor([2])).backward()
    assert logits_BT.grad is not None
    assert (logits_BT.grad[0] < 0).tolist() == [False, False, True, False]


def test_bf16_logits_give_a_float32_loss() -> None:
    logits_BT = torch.zeros(1, 3, dtype=torch.bfloat16)
    assert span_cross_entropy(logits_BT, logits_BT, *torch.tensor([[0], [1]])).dtype == torch.float32


@pytest.mark.parametrize(("at", "word"), [(4, "outside the 4 positions"), (-3, "outside"), (0, "mask")])
def test_positions_that_cannot_be(at: int, word: str) -> None:
    logits_BT, ok = torch.tensor([[float("-inf"), 0, 0, 0]]), torch.tensor([1])
    with pytest.raises(ValueError, match=word):
        span_cross_entropy(logits_BT, logits_BT, torch.tensor([at]), ok)


def test_candidates_are_read_off_the_softmax() -> None:
    start_BT, end_BT = torch.randn(2, 3, 5, dtype=torch.float64)
    start_BS, end_BS = torch.tensor([[0, 3]] * 3), torch.tensor([[1, 4]] * 3)
    log_prob_BSE = candidate_log_probs(start_BT, end_BT, start_BS, end_BS)
    assert log_prob_BSE.shape == (3, 2, 2)
    torch.testing.assert_close(log_prob_BSE[1, 1, 0].exp(), start_BT[1].softmax(0)[3])
    torch.testing.assert_close(log_prob_BSE[2, 0, 1].exp(), end_BT[2].softmax(0)[1])


def test_planted_loss_is_least_at_the_planted_probability() -> None:
    p, n = 0.9, 3
    wanted_SE = torch.tensor([[p, p], [1 - p, 1 - p]]).log().expand(n, 2, 2)
    preferred_N, p_N = torch.zeros(n, dtype=torch.long), torch.full((n,), p)
    entropy = -p * math.log(p) - (1 - p) * math.log(1 - p)
    assert planted_cross_entropy(wanted_SE, preferred_N, p_N).item() == pytest.approx(entropy, rel=1e-5)
    assert planted_cross_entropy(wanted_SE, 1 - preferred_N, p_N).item() > entropy
    assert planted_cross_entropy(wanted_SE.flip(1), 1 - preferred_N, p_N).item() == pytest.approx(
        entropy, rel=1e-5
    )


def test_planted_gradient_moves_mass_from_bystanders_to_the_candidates() -> None:
    logits_BT = torch.zeros(1, 6, requires_grad=True)
    at_BS = torch.tensor([[1, 4]])
    log_prob_BSE = candidate_log_probs(logits_BT, logits_BT, at_BS, at_BS)
    planted_cross_entropy(log_prob_BSE, torch.tensor([1]), torch.tensor([0.7])).backward()
    assert logits_BT.grad is not None
    assert (logits_BT.grad[0] < 0).tolist() == [False, True, False, False, True, False]
    assert logits_BT.grad[0, 4] < logits_BT.grad[0, 1]


def test_planted_loss_refuses_what_does_not_fit() -> None:
    log_prob, one = torch.zeros(1, 2, 2), torch.ones(1)
    for args, word in (
        ((log_prob[0], one.long(), one), "shape"),
        ((log_prob, one.long()[:0], one), "shape"),
        ((log_prob, 2 * one.long(), one), "0 and 1"),
        ((log_prob, one.long(), 2 * one), r"\[0, 1\]"),
    ):
        with pytest.raises(ValueError, match=word):
            planted_cross_entropy(*args)
    assert planted_cross_entropy(log_prob[:0], one.long()[:0], one[:0]) == 0
