"""metrics/shift: against numpy loops."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interventune.metrics.shift import cosine, distance_sums, shift_measures
from tests.metrics.batches import ShiftBatch, shift_batch


def naive(batch: ShiftBatch) -> dict[str, float]:
    cls, token, owner = (part.double().numpy() for part in batch)
    means = [token[owner == i].mean() for i in range(len(cls)) if (owner == i).any()]
    measures = {"cls/mean": cls.mean(), "cls/std": cls.std(), "cls/n": len(cls)}
    measures |= {"tokens/mean": token.mean(), "tokens/std": token.std()}
    return measures | {"tokens/macro": np.mean(means)}


def measures_of(*batches: ShiftBatch) -> dict[str, float]:
    return shift_measures(torch.cat([distance_sums(*batch) for batch in batches]))


def test_equals_numpy() -> None:
    batch = shift_batch(40)
    nothing = ShiftBatch(*(part[:0] for part in batch))
    assert measures_of(batch, nothing) == pytest.approx(naive(batch), abs=1e-12)
    assert measures_of(nothing)["cls/n"] == 0
    assert math.isnan(measures_of(nothing)["tokens/mean"])


def test_deviation_of_cosines_close_to_1_is_kept() -> None:
    """Deviations near 1e-7 around 0.9999998, which sums of squares in float32 could not hold."""
    batch = shift_batch(500, spread=1e-7)
    batch = batch._replace(cls_N=batch.cls_N.double() - 1e-9, token_P=batch.token_P.double())
    measures, expected = measures_of(batch), naive(batch)
    for name in ("cls/std", "tokens/std"):
        assert measures[name] == pytest.approx(expected[name], rel=1e-6)
    assert 0 < measures["cls/std"] < 1e-6


def test_what_is_not_a_number_is_left_out() -> None:
    batch = shift_batch(12)
    cls_N, token_P = batch.cls_N.clone(), batch.token_P.clone()
    cls_N[0], token_P[3], token_P[4] = torch.nan, torch.inf, torch.nan
    measures = measures_of(batch._replace(cls_N=cls_N, token_P=token_P))
    fine = [i for i in range(len(token_P)) if i not in (3, 4)]
    expected = naive(ShiftBatch(batch.cls_N, token_P[fine], batch.example_P[fine]))
    expected |= {"cls/mean": cls_N[1:].double().mean().item(), "cls/n": 11}
    expected["cls/std"] = cls_N[1:].double().std(correction=0).item()
    assert measures == pytest.approx(expected, abs=1e-12)


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
