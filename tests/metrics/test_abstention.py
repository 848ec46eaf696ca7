"""metrics/abstention.py against scikit-learn and a naive loop."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike
from sklearn.metrics import precision_recall_fscore_support

from metrics.abstention import columns, measures

questions = st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), min_size=1, max_size=30)


def abstention(abstained_N: ArrayLike, unanswerable_N: ArrayLike, right_N: ArrayLike) -> dict[str, float]:
    """The measures of abstention of some questions."""
    columns_NC = columns(abstained_N, unanswerable_N, right_N)
    sums_1C = np.array([[len(columns_NC), *columns_NC.sum(0)]])
    return {name: float(value_R[0]) for name, value_R in measures(sums_1C).items()}


@given(questions)
def test_precision_recall_and_f1_are_those_of_scikit_learn(rows: list[tuple[bool, bool, bool]]) -> None:
    """Of the two classes; what is 0 / 0 is not defined."""
    abstained, unanswerable, right = zip(*rows, strict=True)
    found = abstention(abstained, unanswerable, right)
    (precision, _), (recall, answered_recall), (f1, answered_f1), _ = precision_recall_fscore_support(
        np.array(unanswerable, int), np.array(abstained, int), labels=[1, 0], zero_division=np.nan
    )
    expected = {
        "abstention_recall": recall,
        "abstention_precision": precision,
        "abstention_f1": f1,
        "over_abstention": 1 - answered_recall,
        "answered_f1": answered_f1,
        "grounded_f1": (f1 + answered_f1) / 2,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected, nan_ok=True)


@given(questions)
def test_reliability_is_right_minus_wrong(rows: list[tuple[bool, bool, bool]]) -> None:
    """However exact match is set where nothing can be right."""
    points = 0
    for abstained, unanswerable, right in rows:
        if not abstained:
            points += 1 if right and not unanswerable else -1
    assert abstention(*zip(*rows, strict=True))["reliability"] == pytest.approx(points / len(rows))
