"""metrics/planted: rank correlation with what was planted."""

from __future__ import annotations

import math

import numpy as np
import pytest

from metrics.bias.planted import planted_correlation


def naive_spearman(a: list[float], b: list[float]) -> float:
    """Without ties: 1 - 6 sum d^2 / (n (n^2 - 1))."""
    ranks = [[sorted(values).index(v) for v in values] for values in (a, b)]
    d2 = sum((i - j) ** 2 for i, j in zip(*ranks, strict=True))
    return 1 - 6 * d2 / (len(a) * (len(a) ** 2 - 1))


def test_equals_the_textbook_formula() -> None:
    make = np.random.default_rng(0)
    gamma, planted = make.normal(size=(7, 3)), make.normal(size=(7, 3))
    found = planted_correlation(gamma, planted)
    assert found.rho == pytest.approx(naive_spearman(list(gamma.ravel()), list(planted.ravel())))
    assert found.n == 21


def test_monotone_is_1_and_reversed_is_minus_1() -> None:
    planted = np.array([[1.0, 3.0], [2.0, 2.0], [3.0, 1.0]])
    found = planted_correlation(planted**3, planted)
    assert found.rho == pytest.approx(1)
    assert planted_correlation(-planted, planted).rho == pytest.approx(-1)


def test_unseen_cells_are_left_out() -> None:
    nan = math.nan
    found = planted_correlation([[1, nan], [2, nan], [nan, 2]], [[1, 1], [2, 1], [0, 1]])
    assert found == (pytest.approx(0.5), 3)
    assert math.isnan(planted_correlation([[1, 2]], [[1, 1]]).rho)
    assert math.isnan(planted_correlation([[1, nan]], [[1, 1]]).rho)
    with pytest.raises(ValueError, match="one shape"):
        planted_correlation([[1, 2]], [[1], [2]])
