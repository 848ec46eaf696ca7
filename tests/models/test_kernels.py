"""Attention and dropout for CPUs compute what torch's own compute."""

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.testing import assert_close

from interventune.models import kernels
from interventune.models.heads.span import SpanModel
from interventune.models.loading import start
from tests.models.tiny import NAMES, at, rows

SEEN = torch.ones(2, 1, 1, 9, dtype=torch.bool)
SEEN[1, ..., 7:] = False
PADDING = SEEN.expand(2, 1, 9, 9)
"""The second row has two tokens of padding."""
LOCAL = ((torch.arange(9) - torch.arange(9).unsqueeze(1)).abs() <= 2).expand(2, 1, 9, 9)
"""Every token sees its neighbours; the rows differ, as in a sliding window."""


def heads(dtype: torch.dtype) -> list[Tensor]:
    """Query, key and value (2, 3, 9, 8) as an encoder makes them: views of (B, T, H, D)."""
    generator = torch.Generator().manual_seed(0)
    states = [torch.randn(2, 9, 3, 8, generator=generator).to(dtype) for _ in range(3)]
    return [x.transpose(1, 2).detach().requires_grad_() for x in states]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 3e-2)])
@pytest.mark.parametrize("mask", [None, PADDING, LOCAL, PADDING.float().log().clamp_min(-1e4)])
def test_attention_equals_torchs(dtype: torch.dtype, tolerance: float, mask: Tensor | None) -> None:
    ours, theirs = heads(dtype), heads(dtype)
    mixed = kernels.cpu_attention(*ours, mask, p=0.0, scaling=8**-0.5)
    theirs_mask = mask if mask is None or mask.dtype == torch.bool else mask.to(dtype)
    expected = scaled_dot_product_attention(*theirs, attn_mask=theirs_mask)
    assert_close(mixed, expected, atol=tolerance, rtol=tolerance)
    upstream = torch.randn(mixed.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    mixed.backward(upstream)
    expected.backward(upstream)
    gradients = [[x.grad for x in states] for states in (ours, theirs)]
    assert_close(*gradients, atol=tolerance, rtol=tolerance)


def test_the_gradient_with_dropout_is_that_of_the_drawn_mask() -> None:
    ours, theirs = heads(torch.float32), heads(torch.float32)
    torch.manual_seed(3)
    mixed = kernels.cpu_attention(*ours, PADDING, p=0.3, scaling=8**-0.5)
    mixed.square().sum().backward()
    torch.manual_seed(3)
    drawn = kernels.keep_bits(torch.Size((2, 3, 9, 9)), 0.3) != 0
    query, key, value = theirs
    score = (query @ key.transpose(2, 3) * 8**-0.5).masked_fill(~PADDING, -1e30)
    expected = (score.softmax(-1) * drawn / kernels.keep_probability(0.3)) @ value
    expected.square().sum().backward()
    assert_close(mixed, expected)
    assert_close([x.grad for x in ours], [x.grad for x in theirs])


@settings(max_examples=20)
@given(p=st.floats(0.01, 0.9), seed=st.integers(0, 100))
def test_dropout_drops_its_share_scales_the_rest_and_so_do_gradients(p: float, seed: int) -> None:
    torch.manual_seed(seed)
    layer, values = kernels.Dropout(p), torch.ones(40_000)
    dropped = layer(values)
    share = (dropped == 0).double().mean().item()
    assert share == pytest.approx(p, abs=5 * math.sqrt(p * (1 - p) / 40_000) + 2**-15)
    scale = 1 / kernels.keep_probability(p)
    assert dropped[dropped != 0].unique().tolist() == pytest.approx([scale])
    assert not torch.equal(layer(values), dropped)
    torch.manual_seed(seed)
    assert torch.equal(layer(values), dropped)
    assert torch.equal(layer.eval()(values), values)
    # An odd number, not contiguous.
    values = torch.full((33, 5), 2.0, dtype=torch.bfloat16).t().requires_grad_()
    dropped = kernels.Dropout(p)(values)
    dropped.sum().backward()
    assert values.grad is not None
    assert torch.equal(values.grad != 0, dropped != 0)


@pytest.mark.parametrize("architecture", NAMES)
def test_a_model_computes_what_it_computes_with_transformers_kernels(architecture: str) -> None:
    torch.manual_seed(0)
    ours = start(at("random", architecture), SpanModel).eval()
    theirs = copy.deepcopy(ours)
    theirs.encoder.set_attn_implementation("eager")
    expected_kernel = "eager" if architecture in ("xlnet", "deberta-v3") else kernels.ATTENTION
    assert ours.config._attn_implementation == expected_kernel
    assert not [m for m in ours.modules() if type(m) is nn.Dropout]
    inputs = rows([12, 9])
    for precision in (torch.float32, torch.bfloat16):
        with torch.no_grad(), torch.autocast("cpu", precision, enabled=precision == torch.bfloat16):
            mine, other = ours(inputs), theirs(inputs)
        tolerance = 1e-5 if precision == torch.float32 else 5e-2
        assert_close(mine, other, atol=tolerance, rtol=tolerance)


def test_linear_layers_by_onednn_are_torchs_own() -> None:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(40, 24), nn.Linear(24, 56, bias=False))
    expected = layers(x := torch.randn(3, 5, 80)[..., ::2])
    kernels.use_linear_kernels(layers)
    with torch.inference_mode():
        assert_close(layers(x), expected.detach(), rtol=1e-5, atol=1e-6)
        assert layers(x[:0]).shape == (0, 5, 56)
    assert layers(x).requires_grad, "with gradients torch's own"
    assert_close(layers.double()(x.double()).float(), expected, rtol=1e-5, atol=1e-6)
