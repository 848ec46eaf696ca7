"""metrics/answers: the data sets' rules against naive loops and cases worked by hand."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interventune.metrics.answers import Scoring, is_unknown, normalise_answer, score_answer

WORDS = ["the", "a", "red", "bike", "no", "yes", "unknown", "noanswer", "old,"]
spoken = st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join)
HOTPOTQA = {"yes it is": "yes", "no": "no one", "noanswer": "no answer", "the": "a"}
HOTPOTQA |= {"cannot be determined": "unknown"}


def normal(text: str) -> str:
    """As the official scripts, which leave nothing of an article alone."""
    words = re.sub(r"[^\w\s]", "", text.lower()).split()
    return " ".join(word for word in words if word not in ("a", "an", "the"))


def naive_f1(prediction: str, gold: str, *, hotpotqa: bool = False) -> float:
    predicted, expected = normal(prediction), normal(gold)
    if hotpotqa and predicted != expected and {predicted, expected} & {"yes", "no", "noanswer"}:
        return 0.0
    left, right = predicted.split(), expected.split()
    if not hotpotqa and (not left or not right):
        return float(left == right)
    remaining = list(right)
    for word in left:
        if word in remaining:
            remaining.remove(word)
    common = len(right) - len(remaining)
    if common == 0:
        return 0.0
    precision, recall = common / len(left), common / len(right)
    return 2 * precision * recall / (precision + recall)


def naive_leave_one_out(prediction: str, references: list[str]) -> tuple[float, float]:
    total_em = total_f1 = 0.0
    for i in range(len(references)):
        others = [text for j, text in enumerate(references) if j != i] or references
        total_em += max(float(normal(prediction) == normal(text)) for text in others)
        total_f1 += max(naive_f1(prediction, text) for text in others)
    return total_em / len(references), total_f1 / len(references)


def test_normalisation_of_the_official_scripts() -> None:
    written = ["The  Cat.", "a-b", "An apple a day", "theatre", "U.S.", "café — the end"]
    expected = ["cat", "ab", "apple day", "theatre", "us", "café — end"]
    assert list(map(normalise_answer, written)) == expected


@pytest.mark.parametrize(
    ("scoring", "prediction", "references", "em", "overlap"),
    [
        ("max", "black cat", ["cat", "a black cat!"], 1, 1),
        ("max", "cat cat", ["cat"], 0, 2 / 3),
        ("max", "I don't know.", [], 1, 1),
        ("max", "A", [], 0, 0),
        # Nothing is left of these texts but themselves; where the text answers, these words may.
        *(("max", text, [text], 1, 1) for text in ("", "A", "+", "The", "C++", "%")),
        *(("max", text, [text], 1, 1) for text in ("unknown", "No answer", "I Don't Know")),
        *(("max", text, ["A"], 0, 0) for text in ("unknown", "", "+", "an")),
        *(("max", text, ["the", "cat"], score, score) for text, score in (("cat", 1), ("", 0))),
        *(("max", text, [gold], 0, 0) for text, gold in (("B", "+"), ("", "unknown"))),
        # Overlaps 2/3, 1, 0, 2/3: the others' best is 1, 2/3, 1, 1.
        ("leave_one_out", "red", ["a red bike", "red", "bike", "red bike"], 3 / 4, 11 / 12),
        ("leave_one_out", "red", ["red", "red", "blue", "blue"], 1, 1),
        ("leave_one_out", "", ["unknown", "no", "no", "no"], 3 / 4, 3 / 4),
        ("leave_one_out", "not mentioned", ["unknown", "unknown"], 1, 1),
        ("leave_one_out", "Nobody knows", ["nobody knows", "nobody knows.", "Ida"], 1, 1),
        *(("leave_one_out", text, [gold], 1, 1) for text, gold in (("Red!", "red"), ("A", "A"))),
        *(("leave_one_out", text, ["unknown soldier"], 0, 0) for text in ("", "unknown")),
        ("leave_one_out", "A", ["unknown"], 0, 0),
        ("hotpotqa", "Unknown", ["unknown"], 1, 1),
        ("hotpotqa", "Ida Mork", ["Mork"], 0, 2 / 3),
        *(("hotpotqa", text, [gold], 0, 0) for text, gold in HOTPOTQA.items()),
    ],
)
def test_the_data_sets_definitions(
    scoring: Scoring, prediction: str, references: list[str], em: float, overlap: float
) -> None:
    score = score_answer(prediction, references, scoring)
    assert score[:2] == pytest.approx((em, overlap))
    assert not (score.unknown and em and any(references) and scoring != "leave_one_out")


comparable = spoken.map(lambda text: text if normal(text) else f"{text} bike")


@given(comparable, st.lists(comparable, min_size=1, max_size=5))
def test_scores_equal_naive_loops(prediction: str, references: list[str]) -> None:
    if not is_unknown(prediction):
        expected = naive_leave_one_out(prediction, references)
        assert score_answer(prediction, references, "leave_one_out")[:2] == pytest.approx(expected)
    if not is_unknown(prediction, references[:1]):
        em, overlap, _ = score_answer(prediction, references[:1], "hotpotqa")
        assert em == float(normal(prediction) == normal(references[0]))
        assert overlap == pytest.approx(naive_f1(prediction, references[0], hotpotqa=True))
    if not is_unknown(prediction, references):
        em, overlap, _ = score_answer(prediction, references, "max")
        assert em == max(float(normal(prediction) == normal(text)) for text in references)
        assert overlap == pytest.approx(max(naive_f1(prediction, text) for text in references))
