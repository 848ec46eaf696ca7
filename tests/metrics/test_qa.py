"""metrics/qa: the official SQuAD definitions, on cases worked by hand."""

from __future__ import annotations

import doctest
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import metrics.bias
import metrics.qa
from metrics.qa import AnswerScores, exact_match, f1, normalise_answer


@pytest.mark.parametrize("module", [metrics.qa, metrics.bias])
def test_docstring_examples(module: object) -> None:
    assert doctest.testmod(module, extraglobs={"torch": torch}).failed == 0  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  Cat.", "cat"),
        ("a-b", "ab"),
        ("An apple a day", "apple day"),
        ("theatre", "theatre"),
        ("the", ""),
        ("U.S.", "us"),
        ("café — the end", "café — end"),
    ],
)
def test_normalisation(text: str, normal: str) -> None:
    assert normalise_answer(text) == normal


@pytest.mark.parametrize(
    ("prediction", "references", "em", "overlap"),
    [
        ("the Cat", ["cat"], 1, 1),
        ("black cat", ["cat", "a black cat!"], 1, 1),
        ("black cat sat", ["cat"], 0, 0.5),
        ("cat cat", ["cat"], 0, 2 / 3),
        ("dog", ["cat"], 0, 0),
        ("", [], 1, 1),
        ("", [""], 1, 1),
        ("cat", [], 0, 0),
        ("", ["cat"], 0, 0),
        ("the", [], 1, 1),
        ("cat", ["the", "cat"], 1, 1),
        ("", ["the", "cat"], 0, 0),
    ],
)
def test_scores(prediction: str, references: list[str], em: float, overlap: float) -> None:
    assert exact_match(prediction, references) == em
    assert f1(prediction, references) == pytest.approx(overlap)


@given(st.text(max_size=20), st.lists(st.text(max_size=20), max_size=3))
def test_f1_is_between_exact_match_and_1(prediction: str, references: list[str]) -> None:
    assert exact_match(prediction, references) <= f1(prediction, references) <= 1


def test_metric_sums_and_merges() -> None:
    one, two = AnswerScores(), AnswerScores()
    one.update(["cat"], [["the cat", "dog"]])
    two.update(["dog here", ""], [["dog"], ["x"]])
    one.merge_state(two)
    result = one.compute()
    assert result.n.item() == 3
    assert result.exact_match.item() == pytest.approx(1 / 3)
    assert result.f1.item() == pytest.approx((1 + 2 / 3) / 3)


def test_metric_without_questions_is_nan() -> None:
    metric = AnswerScores()
    metric.update([], [])
    assert math.isnan(metric.compute().f1)
    assert metric.compute().n == 0


def test_metric_survives_a_bf16_model() -> None:
    model = torch.nn.Module()
    model.qa = AnswerScores()
    model.to(torch.bfloat16)
    model.qa.update(["x"] * 1001, [["x"]] * 1001)
    assert model.qa.compute().f1 == 1
    assert model.qa.f1_sum.item() == 1001


def test_metric_refuses_what_does_not_fit() -> None:
    metric = AnswerScores()
    with pytest.raises(ValueError, match="1 predictions for 2"):
        metric.update(["x"], [["x"], ["y"]])
    with pytest.raises(ValueError, match="list of texts"):
        metric.update(["x"], ["x"])
