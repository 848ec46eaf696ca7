"""Questions to rows of tokens with their targets: answer span and type, rationale, best-shown tokens.

Shape letters: T tokens, E the two boundaries (start, end).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from data_modules.encoding.windows import EncodedRow, Encoding, encode_texts, full_query, progress, token_span
from data_modules.questions.answer_spans import number_class, option_class
from data_modules.schema import AnswerType, QAExample, Span

WINDOW_TYPES: tuple[AnswerType, ...] = ("yes", "no", "unknown", "span")
"""The targets of a window, in the order of the models' type scores; numbers and options are spans."""


class QAFeature(NamedTuple):
    """A window with its targets. A question whose answer is not in the window is unknown there, and its span
    the classification token (faithfulness spec 1.3)."""

    row: EncodedRow
    start: int
    end: int
    answer_type: int
    """Index into WINDOW_TYPES."""
    number: int
    """XLNet's number class: 0 = none of them."""
    option: int
    """XLNet's option class: 0 = no option, 1 = the word before "or", 2 = the one after."""
    rationale_T: np.ndarray
    """True at rationale tokens; all False unless the window holds every rationale whole."""
    max_context_T: np.ndarray
    """True at the context tokens that no other window shows with more context around them."""


def encode_qa(examples: Sequence[QAExample], tokenizer: Any, encoding: Encoding) -> list[QAFeature]:
    """Windows of every example, with the first answer as target."""
    texts = ((ex.context, full_query(ex, encoding, tokenizer), ex.id) for ex in examples)
    features: list[QAFeature] = []
    windows: list[EncodedRow] = []
    for row in progress(encode_texts(texts, tokenizer, encoding), len(examples), "tokenising questions"):
        if windows and windows[0].example != row.example:
            features += qa_features(examples[windows[0].example], windows)
            windows = []
        windows.append(row)
    return features + (qa_features(examples[windows[0].example], windows) if windows else [])


def qa_features(example: QAExample, windows: Sequence[EncodedRow]) -> list[QAFeature]:
    """All windows of one example, with their targets."""
    number = option = 0
    if example.answer_type == "number":
        number = number_class(example.gold[0])
    elif example.answer_type == "option":
        option = option_class(example.gold[0], example.question)
    best = max_context(windows)
    features = []
    for row, max_context_T in zip(windows, best, strict=True):
        span = token_span(row.offsets_TE, *_trimmed(example.answers[0])) if example.answers else None
        kind = example.answer_type if example.answer_type in ("yes", "no") else "unknown"
        start, end = (row.cls, row.cls) if span is None else span
        features.append(
            QAFeature(
                row=row,
                start=start,
                end=end,
                answer_type=WINDOW_TYPES.index("span" if span is not None else kind),
                number=number,
                option=option,
                rationale_T=rationale_tokens(example.rationale, row.offsets_TE),
                max_context_T=max_context_T,
            )
        )
    return features


def rationale_tokens(rationale: Sequence[Span], offsets_TE: np.ndarray) -> np.ndarray:
    """Boolean (T,): tokens of all rationales; all False unless the window holds each of them whole."""
    mask_T = np.zeros(len(offsets_TE), dtype=bool)
    for span in rationale:
        found = token_span(offsets_TE, *_trimmed(span))
        if found is None:
            return np.zeros(len(offsets_TE), dtype=bool)
        mask_T[found[0] : found[1] + 1] = True
    return mask_T


def max_context(windows: Sequence[EncodedRow]) -> list[np.ndarray]:
    """Per window, boolean (T,): the context tokens that this window shows best (SQuAD's rule): with the
    largest smaller margin to its two ends, plus a hundredth of its length; the first of equals."""
    if len(windows) == 1:
        return [windows[0].offsets_TE[:, 0] >= 0]
    best: dict[int, tuple[float, int]] = {}
    inside = [np.flatnonzero(row.offsets_TE[:, 0] >= 0) for row in windows]
    for w, (row, at) in enumerate(zip(windows, inside, strict=True)):
        for i, token in enumerate(at):
            score = min(i, len(at) - 1 - i) + 0.01 * len(at)
            key = int(row.offsets_TE[token, 0])
            if key not in best or score > best[key][0]:
                best[key] = (score, w)
    result = []
    for w, (row, at) in enumerate(zip(windows, inside, strict=True)):
        mask_T = np.zeros(len(row.offsets_TE), dtype=bool)
        mask_T[[t for t in at if best[int(row.offsets_TE[t, 0])][1] == w]] = True
        result.append(mask_T)
    return result


def _trimmed(span: Span) -> tuple[int, int]:
    """Start and end without white space at either side, to which no token may belong."""
    start = span.start + len(span.text) - len(span.text.lstrip())
    return start, start + len(span.text.strip())
