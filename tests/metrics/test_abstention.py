"""Measures of abstention against scikit-learn and a loop; which labelled answers abstain."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike
from sklearn.metrics import precision_recall_fscore_support

from interventune.metrics.abstention import measures, recall_at
from interventune.metrics.unknown import LIST, unknown_form, without_negated

questions = st.lists(st.tuples(*[st.booleans()] * 3), min_size=1, max_size=30)
LEFT = {"Not the grandfather.": ".", "It wasn't the cook but the guest": "it was but guest"}
LEFT |= {"The guest rather than the cook, not the maid": "guest ,"}
LEFT |= {"Neither the cook nor the guest": "", "the notary of Nottingham": "notary of nottingham"}


def abstention(abstained: ArrayLike, unanswerable: ArrayLike, right: ArrayLike) -> dict[str, float]:
    """The measures of abstention of some questions."""
    abstained_N, unanswerable_N = np.array(abstained, bool), np.array(unanswerable, bool)
    right_N = np.where(abstained_N | unanswerable_N, 0, right)
    refused_N = abstained_N & unanswerable_N
    columns = (np.ones_like(right_N), unanswerable_N, abstained_N, refused_N, right_N)
    sums_1C = np.array([[column_N.sum() for column_N in columns]])
    return {name: float(value_R[0]) for name, value_R in measures(sums_1C).items()}


@given(questions)
def test_precision_recall_and_f1_are_scikit_learns(rows: list[tuple[bool, bool, bool]]) -> None:
    """Of the two classes; what is 0 / 0 is not defined."""
    abstained, unanswerable, right = zip(*rows, strict=True)
    actual = abstention(abstained, unanswerable, right)
    classes = np.array(unanswerable, int), np.array(abstained, int)
    theirs = precision_recall_fscore_support(*classes, labels=[1, 0], zero_division=np.nan)
    (precision, _), (recall, answered_recall), (f1, answered_f1), _ = theirs
    expected = {"abstention_recall": recall, "abstention_precision": precision}
    expected |= {"abstention_f1": f1, "answered_f1": answered_f1}
    expected |= {"over_abstention": 1 - answered_recall, "grounded_f1": (f1 + answered_f1) / 2}
    assert {name: actual[name] for name in expected} == pytest.approx(expected, nan_ok=True)


@given(questions)
def test_reliability_is_right_minus_wrong(rows: list[tuple[bool, bool, bool]]) -> None:
    """However exact match is set where nothing can be right."""
    points = 0
    for abstained, unanswerable, right in rows:
        if not abstained:
            points += 1 if right and not unanswerable else -1
    assert abstention(*zip(*rows, strict=True))["reliability"] == pytest.approx(points / len(rows))


@given(st.lists(st.tuples(st.booleans(), st.integers(-9, 9)), min_size=2), st.floats(0, 1))
def test_recall_at_an_over_abstention(rows: list[tuple[bool, int]], over: float) -> None:
    """Its threshold lies between two scores of answerable questions; it needs both kinds."""
    falling, unanswerable = (
        sorted((score for none, score in rows if none == kind), reverse=True) for kind in (0, 1)
    )
    recall = recall_at(over, *map(np.array, zip(*rows, strict=True)))
    if not falling or not unanswerable:
        assert np.isnan(recall)
        return
    first = int(over * (len(falling) - 1))  # as many are refused, but for ties
    ends = falling[first], falling[min(first + 1, len(falling) - 1)]
    least, most = (np.mean([score > end for score in unanswerable]) for end in ends)
    assert least <= recall <= most


PAGE = (Path(__file__).parents[2] / "docs" / "abstention.md").read_text()
LABELLED = [line.split("\t") for line in Path(__file__).with_name("abstaining_answers.tsv").open()]
ANSWERS = [(text.strip(), label == "unknown") for label, *texts in LABELLED for text in texts]


def test_precision_and_recall_on_labelled_answers_are_those_of_the_page() -> None:
    found = [bool(unknown_form(text)) for text, _ in ANSWERS]
    right = sum(said and unknown for said, (_, unknown) in zip(found, ANSWERS, strict=True))
    precision, recall = right / sum(found), right / sum(unknown for _, unknown in ANSWERS)
    assert min(precision, recall) > 0.97
    numbers = f"precision is {precision:.3f} and recall {recall:.3f}".replace("0.", ".")
    assert f"{len(ANSWERS):,} labelled answers {numbers}" in " ".join(PAGE.split())


def test_the_page_prints_the_list() -> None:
    lines = PAGE.partition("counts as unknown")[2]
    listed = dict(re.findall(r"^\| `([^`]+)` \| (.*)\|$", lines, re.M))
    assert [*listed] == [*LIST["forms"]]
    for form, examples in listed.items():
        assert {unknown_form(text) for text in examples.split("; ")} == {form}


@pytest.mark.parametrize(("text", "left"), LEFT.items())
def test_a_negated_mention_is_not_a_mention(text: str, left: str) -> None:
    assert without_negated(text) == left
