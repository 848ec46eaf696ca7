"""Means over groups of nonsense."""

from __future__ import annotations

import math

import numpy as np
import pytest
from evaluation.protocols.consistency.results import mean_score
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays


@given(arrays(np.float64, (4, 2), elements=st.floats(0, 1)), st.integers(1, 7))
def test_the_mean_of_equal_scores_is_that_score(score_NA: np.ndarray, groups: int) -> None:
    """To the bit: a paired test of rounding errors would find differences."""
    assert mean_score([score_NA] * groups).tolist() == score_NA.tolist()


def test_groups_without_a_score_are_left_out() -> None:
    nan = math.nan
    groups = [
        np.array([[0.2, nan], [nan, 0.5]]),
        np.array([[0.6, nan], [0.3, 0.7]]),
        np.array([[0.1, nan]] * 2),
    ]
    found = mean_score(groups)
    assert found[:, 0].tolist() == pytest.approx([0.3, 0.2])
    assert math.isnan(found[0, 1])
    assert found[1, 1] == pytest.approx(0.6)
