"""Token spans back to answer texts, cut from the raw context.

Shape letters: B windows in a batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

from data_modules.datasets import QASet


class Answer(NamedTuple):
    """The decoded answer of one question."""

    example: int
    """Index of the question in its set."""
    text: str
    start: int
    """Where the text begins in the context; -1 where no window allowed an answer."""
    score: float
    """Sum of start and end logit in the best window; -inf where no window allowed an answer."""


def decode_answers(
    data: QASet, feature_B: Tensor, start_B: Tensor, end_B: Tensor, score_B: Tensor
) -> Iterator[Answer]:
    """The best window's answer of every question in a batch that holds all of its windows.

    Args:
        data: the set that the batch comes from.
        feature_B: which windows these are.
        start_B, end_B: first and last answer token, in the unpadded window.
        score_B: what to compare windows by.
    """
    best: dict[int, tuple[float, int, int, int]] = {}
    rows = zip(*(column.tolist() for column in (feature_B, start_B, end_B, score_B)), strict=True)
    for feature, start, end, score in rows:
        example = data.features[feature].row.example
        if example not in best or score > best[example][0]:
            best[example] = (score, feature, start, end)
    for example, (score, feature, start, end) in best.items():
        text, at = "", -1
        if score > float("-inf"):
            offsets_TE = data.features[feature].row.offsets_TE
            at = int(offsets_TE[start, 0])
            text = data.examples[example].context[at : offsets_TE[end, 1]]
            at += len(text) - len(text.lstrip())
        yield Answer(example, text.strip(), at, score)
