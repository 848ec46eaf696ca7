"""metrics/answers: the data sets' rules against naive loops and cases worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metrics.answers import AnswerScores, Scoring, is_unknown, normalise_answer, score_answer
from tests.metrics.batches import answers_batch

TYPES = ["yes", "no", "unknown", "span", "number", "option"]

words = st.lists(
    st.sampled_from(["the", "a", "red", "bike", "no", "yes", "unknown", "noanswer", "old,"]), max_size=4
).map(" ".join)
spoken = words.filter(lambda text: bool(text))  # "" is this project's way to say unknown, not the scripts'


def naive_f1(prediction: str, gold: str, *, hotpotqa: bool = False) -> float:
    predicted, expected = normalise_answer(prediction), normalise_answer(gold)
    if hotpotqa:
        for one, other in ((predicted, expected), (expected, predicted)):
            if one in ("yes", "no", "noanswer") and one != other:
                return 0.0
    left, right = predicted.split(), expected.split()
    if not hotpotqa and (not left or not right):
        return float(left == right)
    common = 0
    remaining = list(right)
    for word in left:
        if word in remaining:
            remaining.remove(word)
            common += 1
    if common == 0:
        return 0.0
    precision, recall = common / len(left), common / len(right)
    return 2 * precision * recall / (precision + recall)


def naive_leave_one_out(prediction: str, references: list[str]) -> tuple[float, float]:
    total_em = total_f1 = 0.0
    for i in range(len(references)):
        others = [text for j, text in enumerate(references) if j != i] or references
        total_em += max(float(normalise_answer(prediction) == normalise_answer(text)) for text in others)
        total_f1 += max(naive_f1(prediction, text) for text in others)
    return total_em / len(references), total_f1 / len(references)


def test_normalisation_and_what_says_unknown() -> None:
    written = ["The  Cat.", "a-b", "An apple a day", "theatre", "the", "U.S.", "café — the end"]
    normal = ["cat", "ab", "apple day", "theatre", "", "us", "café — end"]
    assert list(map(normalise_answer, written)) == normal
    assert all(map(is_unknown, ["", "  ", "unknown", "UNKNOWN!", "the unknown"]))
    assert not any(map(is_unknown, ["the", "not unknown", "5", "."]))


@pytest.mark.parametrize(
    ("scoring", "prediction", "references", "em", "overlap"),
    [
        ("max", "black cat", ["cat", "a black cat!"], 1, 1),
        ("max", "cat cat", ["cat"], 0, 2 / 3),
        ("max", "", [""], 1, 1),
        ("max", "the", [], 1, 1),
        ("max", "the", ["the"], 1, 1),  # SQuAD 2 counts any empty text as no answer
        ("max", "cat", ["the", "cat"], 1, 1),
        ("max", "", ["the", "cat"], 0, 0),
        # Overlaps 2/3, 1, 0, 2/3: the others' best is 1, 2/3, 1, 1.
        ("leave_one_out", "red", ["a red bike", "red", "bike", "red bike"], 3 / 4, (1 + 2 / 3 + 1 + 1) / 4),
        ("leave_one_out", "red", ["red", "red", "blue", "blue"], 1, 1),
        ("leave_one_out", "Red!", ["red"], 1, 1),
        ("leave_one_out", "", ["unknown", "no", "no", "no"], 3 / 4, 3 / 4),
        ("leave_one_out", "", ["unknown soldier"], 0, 0),
        ("leave_one_out", "unknown", ["unknown soldier"], 0, 2 / 3),
        ("leave_one_out", "A", ["A"], 1, 1),
        ("leave_one_out", "A", ["unknown"], 0, 0),
        ("hotpotqa", "yes it is", ["yes"], 0, 0),
        ("hotpotqa", "no", ["no one"], 0, 0),
        ("hotpotqa", "noanswer", ["no answer"], 0, 0),
        ("hotpotqa", "Ida Mork", ["Mork"], 0, 2 / 3),
        ("hotpotqa", "the", ["a"], 1, 0),
    ],
)
def test_the_data_sets_definitions(
    scoring: Scoring, prediction: str, references: list[str], em: float, overlap: float
) -> None:
    assert score_answer(prediction, references, scoring) == pytest.approx((em, overlap))


@given(spoken, st.lists(spoken, min_size=1, max_size=5), words)
def test_scores_equal_naive_loops(prediction: str, references: list[str], other: str) -> None:
    expected = naive_leave_one_out(prediction, references)
    assert score_answer(prediction, references, "leave_one_out") == pytest.approx(expected)
    em, overlap = score_answer(prediction, references[:1], "hotpotqa")
    assert em == float(normalise_answer(prediction) == normalise_answer(references[0]))
    if normalise_answer(prediction) != "unknown" or normalise_answer(references[0]) != "unknown":
        assert overlap == pytest.approx(naive_f1(prediction, references[0], hotpotqa=True))
    some = [*references, other]
    em, overlap = score_answer(prediction, some, "max")
    if kept := [text for text in some if normalise_answer(text)]:
        assert em == max(float(normalise_answer(prediction) == normalise_answer(text)) for text in kept)
        assert overlap == pytest.approx(max(naive_f1(prediction, text) for text in kept))
    assert em <= overlap <= 1


def test_scores_by_type_equal_a_naive_loop() -> None:
    data = answers_batch(0, 60)
    metric = AnswerScores(TYPES)
    metric.update(*data)
    result, rows = metric.compute(), list(zip(*data, strict=True))
    for k in range(len(TYPES)):
        mine = [row for row in rows if row[2] == k]
        found = [value[k].item() for value in result[:3]]
        scores = [
            (*score_answer(prediction, texts, rule), prediction in ("", "unknown"))
            for prediction, texts, _, rule in mine
        ]
        expected = np.mean(scores, axis=0) if mine else [math.nan] * 3
        assert found == pytest.approx(list(expected), nan_ok=True)
        assert result.n_K[k] == len(mine)
    assert result.n == 60
    assert result.em_K.dtype == result.em.dtype == torch.float64
    weighted = (result.f1_K.nan_to_num() * result.n_K).sum() / result.n
    assert result.f1.item() == pytest.approx(weighted.item())
