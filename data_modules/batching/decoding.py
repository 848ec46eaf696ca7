"""Token spans back to answer texts, cut from the raw context; the windows of a question brought together.

Models that also say yes, no and unknown follow faithfulness spec 2.2 (rationale heads) and 2.3 (XLNet's
heads), without their accidents: an answer of one character stays an answer.

Shape letters: B windows in a batch, C answer types (yes, no, unknown).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from data_modules.batching.sets import QASet
from data_modules.questions.answer_spans import NUMBER_WORDS, option_words
from data_modules.schema import AnswerType


class Answer(NamedTuple):
    """The decoded answer of one question."""

    example: int
    """Index of the question in its set."""
    text: str
    start: int
    """Where the text begins in the context; -1 without an answer."""
    score: float
    """Sum of start and end logit in the best window; -inf where no window allowed an answer. Of an answer by
    type (yes, no, ...): the score of that type."""
    answer_type: AnswerType = "span"


def decode_answers(
    data: QASet,
    feature_B: Tensor,
    start_B: Tensor,
    end_B: Tensor,
    score_B: Tensor,
    null_B: Tensor | None = None,
) -> Iterator[Answer]:
    """The best window's answer of every question in a batch that holds all of its windows.

    Where the set allows it (`may_abstain`), a question is left unanswered (the empty text) where "no answer"
    scores higher than the best span in every window (SQuAD 2.0, with a threshold of 0).

    Args:
        data: the set that the batch comes from.
        feature_B: which windows these are.
        start_B, end_B: first and last answer token, in the unpadded window.
        score_B: what to compare windows by.
        null_B: score of "no answer" in the window; without it every question is answered.
    """
    best: dict[int, tuple[float, int, int, int]] = {}
    least_null: defaultdict[int, float] = defaultdict(lambda: float("inf"))
    null_B = torch.full_like(score_B, float("-inf")) if null_B is None else null_B
    columns = (feature_B, start_B, end_B, score_B, null_B)
    for feature, start, end, score, null in zip(*(column.tolist() for column in columns), strict=True):
        example = int(data.question_N[feature])
        least_null[example] = min(null, least_null[example])
        if example not in best or score > best[example][0]:
            best[example] = (score, feature, start, end)
    texts = span_texts(data, {example: span[1:] for example, span in best.items()})
    for example, (score, *_) in best.items():
        abstains = score == float("-inf") or (data.may_abstain and least_null[example] > score)
        text, at = ("", -1) if abstains else texts[example]
        yield Answer(example, text, at, score, "span" if text else "unknown")


def written_answers(data: QASet, feature_B: Tensor, texts: Iterable[str]) -> Iterator[Answer]:
    """The answers that a decoder wrote; `unknown` is what it writes where there is none."""
    for feature, text in zip(feature_B.tolist(), texts, strict=True):
        kind: AnswerType = "unknown" if text.lower() == "unknown" else "span"
        yield Answer(int(data.question_N[feature]), "unknown" if kind == "unknown" else text, -1, 0.0, kind)


def span_texts(data: QASet, spans: Mapping[int, tuple[int, int, int]]) -> dict[int, tuple[str, int]]:
    """By question, the text of its span (window, first and last token) and where it begins in the context."""
    if not spans:
        return {}
    texts = {}
    offsets = data.offsets([window for window, _, _ in spans.values()])
    for (example, (_, start, end)), question, offsets_TE in zip(
        spans.items(), data.questions(list(spans)), offsets, strict=True
    ):
        at = int(offsets_TE[start, 0])
        text = question.context[at : offsets_TE[end, 1]]
        texts[example] = text.strip(), at + len(text) - len(text.lstrip())
    return texts


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
    # Plain numbers: one copy from the device a column, for all windows.
    windows, columns = feature_B.tolist(), [[] if x_B is None else x_B.tolist() for x_B in scores]
    start, end, score, types = columns[:4]
    numbers, options = (list(zip(columns[i + 1], columns[i], strict=True)) for i in (4, 6))
    rows: defaultdict[int, list[int]] = defaultdict(list)
    for row, window in enumerate(windows):
        rows[int(data.question_N[window])].append(row)
    best = {example: max(of_question, key=score.__getitem__) for example, of_question in rows.items()}
    texts = span_texts(data, {q: (windows[row], start[row], end[row]) for q, row in best.items()})
    for example, of_question in rows.items():
        span_score = score[best[example]]
        text, at = texts[example] if span_score > float("-inf") else ("", -1)
        yes, no = (max(types[row][kind] for row in of_question) for kind in (0, 1))
        unknown = min(types[row][2] for row in of_question)
        nothing = Answer(example, "unknown", -1, unknown, "unknown")
        span = Answer(example, text, at, span_score, "span") if text else nothing
        if scores.number_B is None:
            others = max(span_score if text else float("-inf"), yes, no)
            if unknown - others > rule.unknown_threshold or others == float("-inf"):
                yield nothing
            elif text and span_score >= others:
                yield span
            else:
                kind: AnswerType = "yes" if yes >= no else "no"
                yield Answer(example, kind, -1, others, kind)
            continue
        number, option = (max(scored[row] for row in of_question) for scored in (numbers, options))
        words = option_words(data.questions([example])[0].question) if option[1] else None
        offered: list[tuple[float, AnswerType, str]] = [
            (unknown, "unknown", "unknown"),
            (yes, "yes", "yes"),
            (no, "no", "no"),
            (number[0], "number", NUMBER_WORDS[number[1] - 1] if number[1] else text),
            (option[0], "option", words[option[1] - 1] if words else text),
        ]
        most, kind, answer = max(offered, key=lambda offer: offer[0])  # the first of equals
        yield Answer(example, answer, -1, most, kind) if most >= rule.type_threshold and answer else span
