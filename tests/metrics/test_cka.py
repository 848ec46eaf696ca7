"""metrics/cka against a naive reference over kernels, its invariances, and ways to cut a set."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from interventune.metrics.cka import LinearCKA
from tests.metrics.batches import embeddings

SMALL = settings(max_examples=25)
seeds = st.integers(0, 10**6)


def naive_cka(x_ND: Tensor, y_NE: Tensor) -> float:
    """HSIC of the two N x N kernels, each centred by H K H: the definition behind the formula."""
    x, y = x_ND.double().numpy(), y_NE.double().numpy()
    n = len(x)
    h = np.eye(n) - np.ones((n, n)) / n
    k, m = h @ x @ x.T @ h, h @ y @ y.T @ h
    hsic = lambda a, b: sum(a[i, j] * b[j, i] for i in range(n) for j in range(n))  # noqa: E731
    return float(hsic(k, m) / np.sqrt(hsic(k, k) * hsic(m, m)))


def metric_of(*batches: tuple[Tensor, Tensor]) -> LinearCKA:
    x_LND, y_LNE = batches[0]
    metric = LinearCKA(len(x_LND), x_LND.shape[2], y_LNE.shape[2])
    for batch in batches:
        metric.update(*batch)
    return metric


def orthogonal(d: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64)).Q


@SMALL
@given(seeds, st.integers(3, 12), st.integers(1, 6), st.integers(1, 6))
def test_equals_centred_kernels(seed: int, n: int, d: int, e: int) -> None:
    x_LND, y_LNE = embeddings(n, d, e, seed)
    streamed_L = metric_of((x_LND, y_LNE)).compute()
    for x_ND, y_NE, streamed in zip(x_LND, y_LNE, streamed_L, strict=True):
        expected = naive_cka(x_ND, y_NE)
        assert streamed.item() == pytest.approx(expected, abs=1e-9)
        assert 0 <= streamed <= 1


@SMALL
@given(seeds, st.floats(0.01, 100), st.floats(-50, 50))
def test_blind_to_rotation_scale_and_offset(seed: int, scale: float, offset: float) -> None:
    x_LND, y_LNE = embeddings(40, 5, 4, seed)
    value_L = metric_of((x_LND, y_LNE)).compute()
    moved = scale * (x_LND @ orthogonal(5, seed) + offset)
    ones_L = torch.ones(2).double()
    same = ((moved, y_LNE, value_L), (y_LNE, x_LND, value_L), (moved, x_LND, ones_L))
    for *pair, expected_L in same:
        torch.testing.assert_close(metric_of(tuple(pair)).compute(), expected_L, rtol=0, atol=1e-9)


@pytest.mark.parametrize("offset", [10.0, 1000.0])
def test_a_large_common_offset_costs_few_digits(offset: float) -> None:
    x_LND, y_LNE = embeddings(200, 6, 6)
    expected = [naive_cka(x, y) for x, y in zip(x_LND, y_LNE, strict=True)]
    parts = (slice(90), slice(90, 200))
    halves = [(x_LND[:, part] + offset, y_LNE[:, part] - offset) for part in parts]
    assert metric_of(*halves).compute().tolist() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("constant", [0.0, 0.1, 1000.3])
def test_a_side_without_variance_is_nan(constant: float) -> None:
    x_LND, y_LNE = embeddings(50, 3, 4)
    same = torch.full_like(x_LND, constant)
    for batch in ((same, y_LNE), (y_LNE, same), (same, same)):
        assert bool(metric_of(batch, batch).compute().isnan().all())
    assert bool(metric_of((x_LND[:, :0], y_LNE[:, :0])).compute().isnan().all())
    assert bool(metric_of((x_LND[:, :1], y_LNE[:, :1])).compute().isnan().all())
