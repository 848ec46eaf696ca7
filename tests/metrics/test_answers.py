"""metrics/answers: the data sets' rules against naive loops and cases worked by hand."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metrics.answers import (
    AnswerScores,
    Scoring,
    is_unknown,
    normalise_answer,
    score_answer,
)
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
def test_squads_official_definitions(
    prediction: str, references: list[str], em: float, overlap: float
) -> None:
    assert score_answer(prediction, references, "max") == pytest.approx((em, overlap))


def naive_leave_one_out(prediction: str, references: list[str]) -> tuple[float, float]:
    total_em = total_f1 = 0.0
    for i in range(len(references)):
        others = [text for j, text in enumerate(references) if j != i] or references
        total_em += max(float(normalise_answer(prediction) == normalise_answer(text)) for text in others)
        total_f1 += max(naive_f1(prediction, text) for text in others)
    return total_em / len(references), total_f1 / len(references)


@pytest.mark.parametrize(
    ("prediction", "references", "em", "overlap"),
    [
        ("white", ["white"] * 4, 1, 1),
        # Overlaps 2/3, 1, 0, 2/3: the others' best is 1, 2/3, 1, 1.
        ("red", ["a red bike", "red", "bike", "red bike"], 3 / 4, (1 + 2 / 3 + 1 + 1) / 4),
        ("red", ["red", "blue", "blue", "blue"], 3 / 4, 3 / 4),
        ("red", ["red", "red", "blue", "blue"], 1, 1),
        ("Red!", ["red"], 1, 1),
        ("three", ["3"], 0, 0),
        ("unknown", ["unknown", "unknown", "no", "unknown"], 1, 1),
        ("", ["unknown", "unknown", "no", "unknown"], 1, 1),
        ("", ["unknown", "no", "no", "no"], 3 / 4, 3 / 4),
        ("", ["unknown soldier"], 0, 0),
        ("unknown", ["unknown soldier"], 0, 2 / 3),
        ("A", ["A"], 1, 1),
        ("A", ["unknown"], 0, 0),
    ],
)
def test_coqa_leaves_each_reference_out(
    prediction: str, references: list[str], em: float, overlap: float
) -> None:
    assert score_answer(prediction, references, "leave_one_out") == pytest.approx((em, overlap))


@given(spoken, st.lists(spoken, min_size=1, max_size=5))
def test_coqa_equals_a_naive_loop(prediction: str, references: list[str]) -> None:
    expected = naive_leave_one_out(prediction, references)
    assert score_answer(prediction, references, "leave_one_out") == pytest.approx(expected)


@given(words, st.lists(words, min_size=1, max_size=5), st.randoms())
def test_the_order_of_references_does_not_matter(
    prediction: str, references: list[str], random: object
) -> None:
    shuffled = list(references)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    for scoring in ("max", "leave_one_out"):
        expected = score_answer(prediction, references, scoring)
        assert score_answer(prediction, shuffled, scoring) == pytest.approx(expected)


@given(spoken, st.lists(spoken, min_size=2, max_size=5))
def test_leaving_out_never_helps(prediction: str, references: list[str]) -> None:
    best = [max(naive_leave_one_out(prediction, [text])[i] for text in references) for i in (0, 1)]
    for value, bound in zip(score_answer(prediction, references, "leave_one_out"), best, strict=True):
        assert -1e-12 <= value <= bound + 1e-12


@pytest.mark.parametrize(
    ("prediction", "reference", "em", "overlap"),
    [
        ("yes", "Yes", 1, 1),
        ("yes it is", "yes", 0, 0),
        ("no", "no one", 0, 0),
        ("noanswer", "no answer", 0, 0),
        ("no one", "one", 0, 2 / 3),
        ("Ida Mork", "Mork", 0, 2 / 3),
        ("1931", "1932", 0, 0),
        ("the", "a", 1, 0),
    ],
)
def test_hotpotqa_gives_no_part_of_a_yes_or_no(
    prediction: str, reference: str, em: float, overlap: float
) -> None:
    assert score_answer(prediction, [reference], "hotpotqa") == pytest.approx((em, overlap))


@given(spoken, spoken)
def test_hotpotqa_equals_a_naive_loop(prediction: str, reference: str) -> None:
    em, overlap = score_answer(prediction, [reference], "hotpotqa")
    assert em == float(normalise_answer(prediction) == normalise_answer(reference))
    if normalise_answer(prediction) != "unknown" or normalise_answer(reference) != "unknown":
        assert overlap == pytest.approx(naive_f1(prediction, reference, hotpotqa=True))


@given(spoken, st.lists(words, min_size=1, max_size=4))
def test_squad_takes_the_best_reference(prediction: str, references: list[str]) -> None:
    em, overlap = score_answer(prediction, references, "max")
    if kept := [text for text in references if normalise_answer(text)]:
        assert em == max(float(normalise_answer(prediction) == normalise_answer(text)) for text in kept)
        assert overlap == pytest.approx(max(naive_f1(prediction, text) for text in kept))
    assert em <= overlap <= 1


@pytest.mark.parametrize("scoring", ["max", "leave_one_out", "hotpotqa"])
@pytest.mark.parametrize(
    ("prediction", "right"), [("", 1), ("unknown", 1), (" Unknown. ", 1), ("cat", 0), ("unknown cat", 0)]
)
def test_no_references_mean_unknown(scoring: Scoring, prediction: str, right: int) -> None:
    assert score_answer(prediction, [], scoring)[0] == right
    assert score_answer(prediction, ["unknown"], scoring)[0] == right
    if right:
        assert score_answer(prediction, [], scoring)[1] == 1
    assert score_answer(prediction, ["dog"], scoring) == (0, 0)


def test_squad_2_counts_any_empty_text_as_no_answer() -> None:
    for references in ([], [""], ["the"]):
        assert score_answer("the", references, "max") == (1, 1)


def test_unknown_is_a_word_or_nothing() -> None:
    assert all(map(is_unknown, ["", "  ", "unknown", "UNKNOWN!", "the unknown"]))
    assert not any(map(is_unknown, ["the", "not unknown", "5", "."]))


def test_real_coqa_answers_equal_a_naive_loop(shared: Path) -> None:
    story = json.loads((shared / "data/coqa/dev-1-story.json").read_text())["data"][0]
    columns = [story["answers"], *story["additional_answers"].values()]
    turns = [[answer["input_text"] for answer in turn] for turn in zip(*columns, strict=True)]
    assert len(turns[0]) == 4
    for references in turns:
        for prediction in {text for turn in turns for text in turn}:
            expected = naive_leave_one_out(prediction, references)
            assert score_answer(prediction, references, "leave_one_out") == pytest.approx(expected)


def scores_of(*batches: Any) -> AnswerScores:
    metric = AnswerScores(TYPES)
    for one in batches:
        metric.update(*one)
    return metric


def test_scores_by_type_equal_a_naive_loop() -> None:
    data = answers_batch(0, 60)
    result = scores_of(data).compute()
    rows = list(zip(*data, strict=True))
    for k in range(len(TYPES)):
        mine = [row for row in rows if row[2] == k]
        assert result.n_K[k] == len(mine) == Counter(data[2])[k]
        if not mine:
            assert result.em_K[k].isnan()
            assert result.unknown_K[k].isnan()
            continue
        scores = [score_answer(prediction, texts, rule) for prediction, texts, _, rule in mine]
        assert result.em_K[k].item() == pytest.approx(sum(em for em, _ in scores) / len(mine))
        assert result.f1_K[k].item() == pytest.approx(sum(overlap for _, overlap in scores) / len(mine))
        assert result.unknown_K[k].item() == pytest.approx(
            sum(row[0] in ("", "unknown") for row in mine) / len(mine)
        )
    assert result.n == 60
    assert result.em_K.dtype == result.em.dtype == torch.float64
    weighted = (result.f1_K.nan_to_num() * result.n_K).sum() / result.n
    assert result.f1.item() == pytest.approx(weighted.item())


def test_what_does_not_fit_is_refused() -> None:
    metric = AnswerScores(["yes", "no"])
    for arguments, word in (
        ((["x"], [], [0]), "references: 0 for 1"),
        ((["x"], [["x"]], [0, 1]), "types: 2 for 1"),
        ((["x"], [["x"]], [2]), "from 0 to 1"),
        ((["x"], [["x"]], [-1]), "from 0 to 1"),
        ((["x"], ["x"], [0]), "list of texts"),
        ((["x"], [["x"]], [0], "best"), "max, leave_one_out, hotpotqa"),
        ((["x"], [["x"]], [0], ["max", "max"]), "scoring: 2 for 1"),
    ):
        with pytest.raises(ValueError, match=word):
            metric.update(*arguments)  # type: ignore[arg-type]
    assert metric.compute().n == 0
    with pytest.raises(ValueError, match="names of the types"):
        AnswerScores([])
