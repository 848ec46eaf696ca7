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

from data_modules.encoding.decoding import Answer
from data_modules.encoding.sets import QASet
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

    def text(self, data: QASet, example: int) -> tuple[str, int]:
        """The best span's text and where it begins; ("", -1) where no window allowed one."""
        score, feature, start, end = self.span
        if score == float("-inf"):
            return "", -1
        offsets_TE = data.features[feature].row.offsets_TE
        at = int(offsets_TE[start, 0])
        text = data.examples[example].context[at : offsets_TE[end, 1]]
        return text.strip(), at + len(text) - len(text.lstrip())


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
        best.setdefault(data.features[window].row.example, _Best()).take(window, *row)
    probabilities = scores.number_B is not None
    for example, found in best.items():
        choose = _by_probability if probabilities else _by_score
        yield choose(data, example, found, rule)


def _column(values_B: Tensor | None) -> Iterable[Any]:
    """A column as plain numbers (one copy from the device for all windows); without one, nothing, forever."""
    return repeat(None) if values_B is None else values_B.tolist()


def _by_score(data: QASet, example: int, found: _Best, rule: AnswerRule) -> Answer:
    text, at = found.text(data, example)
    span = found.span[0] if text else float("-inf")
    others = max(span, found.yes, found.no)
    if found.unknown - others > rule.unknown_threshold:
        return Answer(example, "unknown", -1, found.unknown, "unknown")
    if span >= others:
        return Answer(example, text, at, span, "span") if text else _nothing(example, found)
    kind: AnswerType = "yes" if found.yes >= found.no else "no"
    return Answer(example, kind, -1, others, kind)


def _nothing(example: int, found: _Best) -> Answer:
    return Answer(example, "unknown", -1, found.unknown, "unknown")


def _by_probability(data: QASet, example: int, found: _Best, rule: AnswerRule) -> Answer:
    text, at = found.text(data, example)
    offered: list[tuple[float, AnswerType, str]] = [
        (found.unknown, "unknown", "unknown"),
        (found.yes, "yes", "yes"),
        (found.no, "no", "no"),
        (found.number[0], "number", NUMBER_WORDS[found.number[1] - 1] if found.number[1] else text),
        (found.option[0], "option", _option(data.examples[example].question, found.option[1], text)),
    ]
    score, kind, said = max(offered, key=lambda offer: offer[0])  # the first of equals
    if score >= rule.type_threshold and said:
        return Answer(example, said, -1, score, kind)
    return Answer(example, text, at, found.span[0], "span") if text else _nothing(example, found)


def _option(question: str, chosen: int, text: str) -> str:
    words = option_words(question)
    return words[chosen - 1] if words and chosen else text
