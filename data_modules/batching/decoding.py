"""Token spans back to answer texts, cut from the raw context.

Shape letters: B windows in a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from data_modules.batching.sets import QASet
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
    least_null: dict[int, float] = {}
    null_B = torch.full_like(score_B, float("-inf")) if null_B is None else null_B
    columns = (feature_B, start_B, end_B, score_B, null_B)
    for feature, start, end, score, null in zip(*(column.tolist() for column in columns), strict=True):
        example = int(data.question_N[feature])
        least_null[example] = min(null, least_null.get(example, float("inf")))
        if example not in best or score > best[example][0]:
            best[example] = (score, feature, start, end)
    texts = span_texts(data, {example: span[1:] for example, span in best.items()})
    for example, (score, *_) in best.items():
        text, at = texts[example]
        if score == float("-inf") or (data.may_abstain and least_null[example] > score):
            text, at = "", -1
        yield Answer(example, text, at, score, "span" if text else "unknown")


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
