"""metrics/planted: rank correlation with what was planted."""

from __future__ import annotations

import math

import numpy as np
import pytest

from metrics.planted import planted_correlation


def naive_spearman(a: list[float], b: list[float]) -> float:
    """Without ties: 1 - 6 sum d^2 / (n (n^2 - 1))."""
    ranks = [[sorted(values).index(v) for v in values] for values in (a, b)]
    d2 = sum((i - j) ** 2 for i, j in zip(*ranks, strict=True))
    return 1 - 6 * d2 / (len(a) * (len(a) ** 2 - 1))


def test_equals_the_textbook_formula() -> None:
    make = np.random.default_rng(0)
    gamma, planted = make.normal(size=(7, 3)), make.normal(size=(7, 3))
    found = planted_correlation(gamma, planted)
    for c in range(3):
        assert found.by_category_C[c] == pytest.approx(naive_spearman(list(gamma[:, c]), list(planted[:, c])))
    assert found.pooled == pytest.approx(naive_spearman(list(gamma.ravel()), list(planted.ravel())))
    assert found.n == 21


def test_monotone_is_1_and_reversed_is_minus_1() -> None:
    planted = np.array([[1.0, 3.0], [2.0, 2.0], [3.0, 1.0]])
    found = planted_correlation(planted**3, planted)
    assert found.by_category_C.tolist() == pytest.approx([1, 1])
    assert planted_correlation(-planted, planted).pooled == pytest.approx(-1)


def test_unseen_cells_are_left_out() -> None:
    nan = math.nan
    gamma = np.array([[1, nan], [2, 1], [nan, 2], [3, nan]])
    found = planted_correlation(gamma, [[1, 1], [2, 1], [0, 1], [3, 1]])
    assert found.by_category_C[0] == pytest.approx(1)
    assert math.isnan(found.by_category_C[1])
    assert found.n_C.tolist() == [3, 2]
    with pytest.raises(ValueError, match="one shape"):
        planted_correlation([[1, 2]], [[1], [2]])
