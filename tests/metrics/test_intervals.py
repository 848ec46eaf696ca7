"""Bootstrap intervals: their laws, and their coverage."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.intervals import bootstrap, percentiles

VALUES = st.lists(st.floats(-5, 5), min_size=2, max_size=30)


def interval_of_mean(values: Sequence[float], units: Sequence[int]) -> tuple[float, float]:
    def mean(weight_RU: np.ndarray) -> np.ndarray:
        weight_RN = weight_RU[:, np.array(units)]
        return np.asarray(weight_RN @ np.asarray(values) / weight_RN.sum(1))

    return bootstrap(len({*units}), mean, len(values))


@given(VALUES)
def test_an_interval_lies_within_the_data(values: list[float]) -> None:
    low, high = interval_of_mean(values, range(len(values)))
    assert min(values) - 1e-9 <= low <= high <= max(values) + 1e-9


def test_an_interval_keeps_rows_of_a_unit_together() -> None:
    """Copies of every row under its unit say nothing new."""
    values = np.random.default_rng(1).random(40).tolist()
    once = interval_of_mean(values, range(40))
    assert interval_of_mean(values * 5, [*range(40)] * 5) == pytest.approx(once)


def test_width_and_coverage_are_those_of_the_normal_interval() -> None:
    """About 95 of 100 intervals hold the truth."""
    values = np.random.default_rng(2).normal(size=400)
    low, high = interval_of_mean(values, range(400))
    assert (high - low) / 2 == pytest.approx(1.96 * values.std() / 20, rel=0.1)
    draw, hits = np.random.default_rng(3), 0
    for _ in range(100):
        low, high = interval_of_mean(draw.random(60), range(60))
        hits += low <= 0.5 <= high
    assert 88 <= hits <= 99


def test_percentiles_of_each_column_leave_out_what_is_not_defined() -> None:
    values_RC = np.random.default_rng(4).normal(size=(50, 3))
    values_RC[10:, 1] = np.nan
    values_RC[:, 2] = np.nan
    found_2C = percentiles(values_RC)
    np.testing.assert_allclose(found_2C[:, :2], np.nanquantile(values_RC[:, :2], [0.025, 0.975], axis=0))
    assert np.isnan(found_2C[:, 2]).all()
