"""Windows brought together: the best span, yes, no, unknown, numbers and options."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from data_modules.batching.decoding import AnswerRule, WindowScores, decode_typed_answers
from data_modules.batching.sets import Question

STORY = "He had 5 red or blue kites."
OFFSETS = np.array([[-1, -1], [0, 2], [3, 6], [7, 8], [9, 12], [16, 20], [21, 26]])


def data(windows: int, question: str = "Were they red or blue?") -> Any:
    asked = Question("q", STORY, question, ["5"], "span", "")
    return SimpleNamespace(
        question_N=[0] * windows,
        questions=lambda index: [asked for _ in index],
        offsets=lambda index: [OFFSETS for _ in index],
    )


def scores(
    spans: list[tuple[float, int, int]],
    types: list[tuple[float, float, float]],
    numbers: list[tuple[int, float]] | None = None,
    options: list[tuple[int, float]] | None = None,
) -> WindowScores:
    def column(values: Any, at: int) -> torch.Tensor | None:
        return None if values is None else torch.tensor([value[at] for value in values])

    score, start, end = (torch.tensor([span[i] for span in spans]) for i in range(3))
    n, ns, o, os = column(numbers, 0), column(numbers, 1), column(options, 0), column(options, 1)
    return WindowScores(start, end, score, torch.tensor(types), n, ns, o, os)


def answer(found: WindowScores, rule: AnswerRule | None = None) -> tuple[str, str]:
    windows = len(found.score_B)
    (said,) = decode_typed_answers(data(windows), torch.arange(windows), found, rule or AnswerRule())
    return said.text, said.answer_type


def test_the_highest_score_wins() -> None:
    assert answer(scores([(3.0, 4, 4)], [(1.0, 2.0, 0.0)])) == ("red", "span")
    assert answer(scores([(1.0, 4, 4)], [(1.5, 2.0, 0.0)])) == ("no", "no")
    assert answer(scores([(1.0, 4, 4)], [(2.5, 2.0, 0.0)])) == ("yes", "yes")
    assert answer(scores([(1.0, 4, 4)], [(1.5, 2.0, 5.0)])) == ("unknown", "unknown")


def test_an_answer_of_one_character_stays_an_answer() -> None:
    assert answer(scores([(3.0, 3, 3)], [(0.0, 0.0, 0.0)])) == ("5", "span")


def test_a_question_is_unknown_only_if_every_window_says_so() -> None:
    spans = [(1.0, 4, 4), (2.0, 6, 6)]
    assert answer(scores(spans, [(0.0, 0.0, 9.0), (0.0, 0.0, 1.0)])) == ("kites", "span")
    assert answer(scores(spans, [(0.0, 0.0, 9.0), (0.0, 0.0, 3.0)])) == ("unknown", "unknown")
    assert answer(scores(spans, [(9.0, 0.0, 9.0), (0.0, 0.0, 1.0)])) == ("yes", "yes")


def test_without_a_span_the_model_does_not_know() -> None:
    low = float("-inf")
    assert answer(scores([(low, 0, 0)], [(low, low, -4.0)])) == ("unknown", "unknown")


def test_the_threshold_makes_unknown_rarer() -> None:
    found = scores([(1.0, 4, 4)], [(0.0, 0.0, 2.0)])
    assert answer(found) == ("unknown", "unknown")
    assert answer(found, AnswerRule(unknown_threshold=1.5)) == ("red", "span")


@pytest.mark.parametrize(
    ("types", "number", "option", "said"),
    [
        ((0.01, 0.02, 0.03), (2, 0.05), (1, 0.05), ("red", "span")),
        ((0.01, 0.5, 0.03), (2, 0.05), (1, 0.05), ("no", "no")),
        ((0.01, 0.02, 0.6), (2, 0.05), (1, 0.05), ("unknown", "unknown")),
        ((0.01, 0.02, 0.03), (4, 0.7), (1, 0.05), ("three", "number")),
        ((0.01, 0.02, 0.03), (4, 0.1), (2, 0.8), ("blue", "option")),
    ],
)
def test_xlnets_heads_answer_the_most_probable_type_from_the_threshold_on(
    types: tuple[float, float, float], number: tuple[int, float], option: tuple[int, float], said: Any
) -> None:
    found = scores([(-1.0, 4, 4)], [types], [number], [option])
    assert answer(found) == said


def test_an_option_of_a_question_without_or_is_the_span() -> None:
    found = scores([(-1.0, 4, 4)], [(0.0, 0.0, 0.0)], [(1, 0.0)], [(1, 0.9)])
    (said,) = decode_typed_answers(data(1, "Which colour?"), torch.tensor([0]), found, AnswerRule())
    assert said.text == "red"
