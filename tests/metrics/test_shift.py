"""metrics/shift: against numpy loops, and the ways a set of examples can be cut."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interventune.metrics.shift import EmbeddingShift, ShiftResult, cosine
from tests.metrics.batches import SHIFT_LAYERS, ShiftBatch, shift_batch


def result_of(batch: ShiftBatch) -> ShiftResult:
    metric = EmbeddingShift(SHIFT_LAYERS)
    metric.update(*batch)
    return metric.compute()


def naive(batch: ShiftBatch) -> dict[str, np.ndarray]:
    cls, token = batch.cls_NL.double().numpy(), batch.token_PL.double().numpy()
    owner = batch.example_P.numpy()
    means = [token[owner == i].mean(0) for i in range(len(cls)) if (owner == i).any()]
    return {
        "cls_mean_L": cls.mean(0),
        "cls_std_L": cls.std(0),
        "token_mean_L": token.mean(0),
        "token_std_L": token.std(0),
        "token_macro_L": np.mean(means, axis=0),
        "n": np.array(len(cls)),
    }


def test_equals_numpy() -> None:
    batch = shift_batch(40)
    result = result_of(batch)
    for name, expected in naive(batch).items():
        value = getattr(result, name)
        np.testing.assert_allclose(value.numpy(), expected, rtol=0, atol=1e-12, err_msg=name)
    assert result.n.dtype == torch.int64


def test_deviation_of_cosines_close_to_1_is_kept() -> None:
    """Deviations near 1e-7 around 0.9999998: far below what sums of squared cosines in float32
    could hold.
    """
    batch = shift_batch(500, spread=1e-7)
    batch = batch._replace(cls_NL=batch.cls_NL.double() - 1e-9, token_PL=batch.token_PL.double())
    result, expected = result_of(batch), naive(batch)
    for name in ("cls_std_L", "token_std_L"):
        np.testing.assert_allclose(getattr(result, name).numpy(), expected[name], rtol=1e-6)
    assert 0 < result.cls_std_L.max() < 1e-6


def test_what_is_not_a_number_is_left_out() -> None:
    batch = shift_batch(12)
    cls_NL, token_PL = batch.cls_NL.clone(), batch.token_PL.clone()
    cls_NL[0, 1], token_PL[3, 0], token_PL[4] = torch.nan, torch.inf, torch.nan
    result = result_of(batch._replace(cls_NL=cls_NL, token_PL=token_PL))
    fine = [i for i in range(len(token_PL)) if i not in (3, 4)]
    expected = naive(ShiftBatch(batch.cls_NL, token_PL[fine], batch.example_P[fine]))
    expected["cls_mean_L"] = batch.cls_NL[1:].double().mean(0).numpy()
    for name in ("cls_mean_L", "token_mean_L", "token_macro_L"):
        np.testing.assert_allclose(getattr(result, name).numpy(), expected[name], atol=1e-12)
    assert result.n == 11


@settings(deadline=None)
@given(st.integers(0, 10**6), st.floats(0.01, 1e4), st.floats(0.01, 1e4))
def test_cosine_equals_numpy_whatever_the_scale(seed: int, one: float, other: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    a, b = (torch.randn(8, 16, generator=generator) for _ in range(2))
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        x, y = (value.to(dtype).double().numpy() for value in (a, b))
        expected = (x * y).sum(-1) / np.linalg.norm(x, axis=-1) / np.linalg.norm(y, axis=-1)
        assert cosine(a.to(dtype), b.to(dtype)).dtype == torch.float32
        np.testing.assert_allclose(cosine(a.to(dtype), b.to(dtype)).numpy(), expected, atol=1e-6)
    torch.testing.assert_close(cosine(one * a, other * b), cosine(b, a))
    torch.testing.assert_close(cosine(a, -a), -torch.ones(8))
    assert bool((cosine(a, a * one).abs() <= 1).all())
