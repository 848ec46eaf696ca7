"""Questions to a table: a row holds a window in tokens with its targets, and a question's first window the
question itself.

Columns: `input_ids`, `token_type_ids`, `offsets` (two numbers a token), `cls`; the targets `start`, `end`,
`answer_type`, `number`, `option`, `rationale`, `max_context`; `window`, which of its question's it is. The
first also holds `id`, `context`, `question`, `gold`, `kind` (of the answer) and `dataset`. A row with a
reason in `rejected` holds nothing else: an intervention could not be applied to that question.

Shape letters: T tokens, E the two boundaries (start, end).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from data_modules.encoding.tables import list_column, with_rejected
from data_modules.encoding.windows import EncodedRow, Encoding, encode_texts, full_query, token_span
from data_modules.questions.answer_spans import number_class, option_class
from data_modules.schema import AnswerType, QAExample, Span

WINDOW_TYPES: tuple[AnswerType, ...] = ("yes", "no", "unknown", "span")
"""The targets of a window, in the order of the models' type scores; numbers and options are spans."""

TARGETS = ("start", "end", "answer_type", "number", "option", "window")


_QUESTION = {
    "id": ("id", pa.string()),
    "context": ("context", pa.string()),
    "question": ("question", pa.string()),
    "gold": ("gold", pa.list_(pa.string())),
    "kind": ("answer_type", pa.string()),
    "dataset": ("dataset", pa.string()),
}
"""Columns of a question: where they come from, and their types."""


def encode_questions(
    examples: Sequence[QAExample], tokenizer: Any, encoding: Encoding, *, rejected: Sequence[str] = ()
) -> pa.Table:
    """Windows of every example, with the first answer as target; behind them a row for every reason in
    `rejected`."""
    texts = ((ex.context, full_query(ex, encoding, tokenizer), ex.id) for ex in examples)
    rows: list[EncodedRow] = []
    targets: list[tuple[int, ...]] = []
    best: list[np.ndarray] = []
    for number, windows in groupby(encode_texts(texts, tokenizer, encoding), key=lambda row: row.example):
        listed = list(windows)
        rows += listed
        targets += window_targets(examples[number], listed)
        best += max_context(listed)
    target_NK = np.array(targets, dtype=np.int32).reshape(-1, len(TARGETS))
    firsts = [
        examples[row.example] if window == 0 else None
        for row, (*_, window) in zip(rows, targets, strict=True)
    ]
    rationales = [rationale_tokens(examples[row.example].rationale, row.offsets_TE) for row in rows]
    table = pa.table(
        {
            **token_columns(rows),
            **{name: target_NK[:, k] for k, name in enumerate(TARGETS)},
            "rationale": list_column(rationales, np.uint8),
            "max_context": list_column(best, np.uint8),
            **{
                name: pa.array([q and getattr(q, field) for q in firsts], kind)
                for name, (field, kind) in _QUESTION.items()
            },
        }
    )
    return with_rejected(table, rejected)


def token_columns(rows: Sequence[EncodedRow], prefix: str = "") -> dict[str, pa.Array]:
    """The columns of rows of tokens, their names with a prefix."""
    return {
        f"{prefix}input_ids": list_column([row.input_ids_T for row in rows], np.int32),
        f"{prefix}token_type_ids": list_column([row.token_type_ids_T for row in rows], np.uint8),
        f"{prefix}offsets": list_column([row.offsets_TE.reshape(-1) for row in rows], np.int32),
        f"{prefix}cls": pa.array([row.cls for row in rows], pa.int32()),
    }


def window_targets(example: QAExample, windows: Sequence[EncodedRow]) -> list[tuple[int, ...]]:
    """TARGETS of all windows of one example. A question whose answer is not in the window is unknown there,
    and its span the classification token (faithfulness spec 1.3).

    `answer_type` is an index into WINDOW_TYPES; `number` XLNet's number class, 0 for none of them; `option`
    XLNet's option class: 0 for no option, 1 for the word before "or", 2 for the one after.
    """
    number = option = 0
    if example.answer_type == "number":
        number = number_class(example.gold[0])
    elif example.answer_type == "option":
        option = option_class(example.gold[0], example.question)
    targets: list[tuple[int, ...]] = []
    for window, row in enumerate(windows):
        span = token_span(row.offsets_TE, *_trimmed(example.answers[0])) if example.answers else None
        kind = example.answer_type if example.answer_type in ("yes", "no") else "unknown"
        answer_type = WINDOW_TYPES.index("span" if span is not None else kind)
        targets.append((*(span or (row.cls, row.cls)), answer_type, number, option, window))
    return targets


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
