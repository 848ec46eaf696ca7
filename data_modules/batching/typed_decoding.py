"""Answers of models that also say yes, no and unknown: the windows of a question brought together.

Faithfulness spec 2.2 (rationale heads) and 2.3 (XLNet's heads), without their accidents: text is cut from the
raw context, and an answer of one character stays an answer.

Shape letters: B windows in a batch, C answer types (yes, no, unknown).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

from torch import Tensor

from data_modules.batching.decoding import Answer, span_texts
from data_modules.batching.sets import QASet
from data_modules.questions.answer_spans import NUMBER_WORDS, option_words
from data_modules.schema import AnswerType

YES, NO, UNKNOWN = range(3)


@dataclass(kw_only=True)
class AnswerRule:
    """When an answer type wins over a span.

    Args:
        unknown_threshold: Rationale heads: unknown must score higher than everything else by more than this.
        type_threshold: XLNet's heads: the most probable type is the answer from this probability on, else the
            span; the authors' low 0.1 makes the share of unknown sensitive to it.
    """

    unknown_threshold: float = 0.0
    type_threshold: float = 0.1


class WindowScores(NamedTuple):
    """What a model says about the windows of a batch, in tokens of the unpadded rows; see
    models.heads.answers.AnswerPrediction, which has the same fields."""

    start_B: Tensor
    end_B: Tensor
    score_B: Tensor
    type_BC: Tensor
    number_B: Tensor | None
    number_score_B: Tensor | None
    option_B: Tensor | None
    option_score_B: Tensor | None


class _Best:
    """The running best of one question's windows."""

    def __init__(self) -> None:
        self.span = (float("-inf"), -1, 0, 0)
        self.yes = self.no = float("-inf")
        self.unknown = float("inf")
        self.number = self.option = (float("-inf"), 0)

    def take(
        self,
        window: int,
        start: int,
        end: int,
        score: float,
        types: list[float],
        number: int | None,
        number_score: float | None,
        option: int | None,
        option_score: float | None,
    ) -> None:
        """Look at one more window."""
        if score > self.span[0]:
            self.span = (score, window, start, end)
        self.yes, self.no = max(self.yes, types[YES]), max(self.no, types[NO])
        self.unknown = min(self.unknown, types[UNKNOWN])
        if number is not None and number_score is not None:
            self.number = max(self.number, (number_score, number))
        if option is not None and option_score is not None:
            self.option = max(self.option, (option_score, option))


def decode_typed_answers(
    data: QASet, feature_B: Tensor, scores: WindowScores, rule: AnswerRule
) -> Iterator[Answer]:
    """The answer of every question in a batch that holds all of its windows.

    Over windows, spans, yes, no, numbers and options take their maximum, unknown its minimum (a question is
    unknown only if every window says so). With rationale heads the highest score wins, a span before unknown,
    yes and no where they are equal; with XLNet's the most probable type, from `type_threshold` on.

    Args:
        data: the set that the batch comes from.
        feature_B: which windows these are.
        scores: the model's.
        rule: thresholds.
    """
    best: dict[int, _Best] = {}
    for window, *row in zip(feature_B.tolist(), *map(_column, scores), strict=False):
        best.setdefault(int(data.question_N[window]), _Best()).take(window, *row)
    texts = span_texts(data, {example: windows.span[1:] for example, windows in best.items()})
    for example, windows in best.items():
        text = texts[example] if windows.span[0] > float("-inf") else ("", -1)
        if scores.number_B is None:
            yield _by_score(example, windows, text, rule)
        else:
            words = option_words(data.questions([example])[0].question) if windows.option[1] else None
            yield _by_probability(example, windows, text, words, rule)


def _column(values_B: Tensor | None) -> Iterable[Any]:
    """A column as plain numbers (one copy from the device for all windows); without one, nothing, forever."""
    return repeat(None) if values_B is None else values_B.tolist()


def _by_score(example: int, best: _Best, span: tuple[str, int], rule: AnswerRule) -> Answer:
    text, at = span
    score = best.span[0] if text else float("-inf")
    others = max(score, best.yes, best.no)
    if best.unknown - others > rule.unknown_threshold:
        return Answer(example, "unknown", -1, best.unknown, "unknown")
    if score >= others:
        return Answer(example, text, at, score, "span") if text else _nothing(example, best)
    kind: AnswerType = "yes" if best.yes >= best.no else "no"
    return Answer(example, kind, -1, others, kind)


def _nothing(example: int, best: _Best) -> Answer:
    return Answer(example, "unknown", -1, best.unknown, "unknown")


def _by_probability(
    example: int, best: _Best, span: tuple[str, int], words: tuple[str, str] | None, rule: AnswerRule
) -> Answer:
    text, at = span
    offered: list[tuple[float, AnswerType, str]] = [
        (best.unknown, "unknown", "unknown"),
        (best.yes, "yes", "yes"),
        (best.no, "no", "no"),
        (best.number[0], "number", NUMBER_WORDS[best.number[1] - 1] if best.number[1] else text),
        (best.option[0], "option", words[best.option[1] - 1] if words else text),
    ]
    score, kind, answer = max(offered, key=lambda offer: offer[0])  # the first of equals
    if score >= rule.type_threshold and answer:
        return Answer(example, answer, -1, score, kind)
    return Answer(example, text, at, best.span[0], "span") if text else _nothing(example, best)
