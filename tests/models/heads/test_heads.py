"""Scores and spans against naive loops."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from models.heads.span import SpanHead, best_spans, candidate_log_probs

SEEDS = st.integers(0, 2**31)


def naive_best(start: Tensor, end: Tensor, allowed: Tensor, longest: int) -> tuple[int, int, float]:
    best = (0, 0, -math.inf)
    for i in range(len(start)):
        for j in range(i, min(i + longest, len(start))):
            score = float(start[i] + end[j])
            if allowed[i] and allowed[j] and score > best[2]:
                best = (i, j, score)
    return best


@settings(max_examples=150, deadline=None)
@given(
    batch=st.integers(1, 4),
    tokens=st.integers(1, 14),
    longest=st.integers(1, 20),
    share=st.sampled_from([0.0, 0.3, 0.8, 1.0]),
    seed=SEEDS,
)
def test_best_spans_equal_a_double_loop(
    batch: int, tokens: int, longest: int, share: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    start_BT, end_BT = torch.randn(2, batch, tokens, generator=generator) * 5
    allowed_BT = torch.rand(batch, tokens, generator=generator) < share
    start_B, end_B, score_B = best_spans(start_BT, end_BT, allowed_BT, longest)
    for b in range(batch):
        i, j, score = naive_best(start_BT[b], end_BT[b], allowed_BT[b], longest)
        assert float(score_B[b]) == score
        if score > -math.inf:
            assert (int(start_B[b]), int(end_B[b])) == (i, j)


def test_best_spans_do_not_see_padding_or_the_question() -> None:
    """Lowest finite logits at padding add up to -inf without harm."""
    low = torch.finfo(torch.float32).min
    start_BT = torch.tensor([[9.0, 1.0, 2.0, low], [low, low, low, low]])
    allowed_BT = torch.tensor([[False, True, True, False], [False] * 4])
    start_B, end_B, score_B = best_spans(start_BT, start_BT, allowed_BT, 30)
    assert (start_B[0], end_B[0], score_B[0]) == (2, 2, 4)
    assert score_B[1] == -math.inf


@settings(max_examples=100, deadline=None)
@given(batch=st.integers(1, 4), tokens=st.integers(1, 12), candidates=st.integers(1, 3), seed=SEEDS)
def test_candidate_log_probs_equal_a_naive_softmax(
    batch: int, tokens: int, candidates: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    start_BT, end_BT = torch.randn(2, batch, tokens, generator=generator) * 4
    first_BC, last_BC = torch.randint(tokens, (2, batch, candidates), generator=generator)
    found_BCE = candidate_log_probs(start_BT, end_BT, first_BC, last_BC)
    assert found_BCE.shape == (batch, candidates, 2)
    for b in range(batch):
        for e, (logits, position_BC) in enumerate(((start_BT[b], first_BC), (end_BT[b], last_BC))):
            weights = [math.exp(float(x)) for x in logits]
            for c in range(candidates):
                expected = weights[int(position_BC[b, c])] / sum(weights)
                assert float(found_BCE[b, c, e].exp()) == pytest.approx(expected, rel=1e-4)


def test_probabilities_do_not_depend_on_padding() -> None:
    start = torch.randn(1, 6)
    padded = torch.cat((start, torch.full((1, 9), torch.finfo(torch.float32).min)), dim=1)
    at = torch.tensor([[2, 4]])
    torch.testing.assert_close(
        candidate_log_probs(start, start, at, at), candidate_log_probs(padded, padded, at, at)
    )
    assert candidate_log_probs(padded, padded, at, at).exp().sum() <= 2 + 1e-6


def test_the_span_head_applies_its_layers_and_masks_padding() -> None:
    layers = [nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 2)]
    head = SpanHead(layers).bfloat16()
    hidden_BTD = torch.randn(2, 5, 4).bfloat16()
    mask_BT = torch.tensor([[1, 1, 1, 0, 0], [0, 1, 1, 1, 1]])
    start_BT, end_BT = head(hidden_BTD, mask_BT)
    expected_BTE = layers[2](layers[1](layers[0](hidden_BTD))).float()
    for e, found in enumerate((start_BT, end_BT)):
        assert found.dtype == torch.float32
        assert torch.equal(found[mask_BT == 1], expected_BTE[..., e][mask_BT == 1])
        assert (found[mask_BT == 0] == torch.finfo(torch.float32).min).all()
    (start_BT.softmax(-1).sum() + end_BT.log_softmax(-1)[mask_BT == 1].sum()).backward()
    assert all(torch.isfinite(p.grad).all() for p in head.parameters() if p.grad is not None)
