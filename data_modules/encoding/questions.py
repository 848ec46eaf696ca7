"""Questions to a table: a row holds a window in tokens with its targets, and a question's first window the
question itself.

Columns: `input_ids`, `token_type_ids`, `offsets` (two numbers a token), `cls`; the targets `start`, `end`,
`answer_type`, `number`, `option`, `rationale`, `max_context`; `window`, which of its question's it is. The
first also holds `id`, `context`, `question`, `gold`, `kind` (of the answer), `dataset` and `kept`. A row with
a reason in `rejected` holds nothing else: an intervention could not be applied to that question.

Shape letters: T tokens, N windows, K targets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from data_modules.encoding.tables import list_column
from data_modules.encoding.windows import (
    EncodedRow,
    Encoding,
    encode_texts,
    full_query,
    token_columns,
    token_span,
)
from data_modules.questions.answer_spans import answer_classes
from data_modules.schema import AnswerType, QAExample

WINDOW_TYPES: tuple[AnswerType, ...] = ("yes", "no", "unknown", "span")
"""The targets of a window, in the order of the models' type scores; numbers and options are spans."""

TARGETS = ("start", "end", "answer_type", "number", "option", "window")


def encode_examples(
    examples: Sequence[QAExample], tokenizer: Any, encoding: Encoding, *, answers: bool = False
) -> Iterator[EncodedRow]:
    """The windows of questions, in order; with `answers`, a decoder's rows end in what it shall write."""
    if encoding.is_decoder:
        from data_modules.encoding.prompts import question_rows

        return question_rows(examples, tokenizer, encoding, answers=answers)
    texts = ((ex.context, full_query(ex, encoding, tokenizer), ex.id) for ex in examples)
    return encode_texts(texts, tokenizer, encoding)


def encode_questions(examples: Sequence[QAExample], tokenizer: Any, encoding: Encoding) -> pa.Table:
    """Windows of every example, with the first answer as target.

    A question whose answer is not in the window is unknown there, and its span the classification token
    (faithfulness spec 1.3). `answer_type` is an index into WINDOW_TYPES; `number` and `option` are XLNet's
    classes. `rationale` marks the tokens of all rationales, if the window holds each of them whole. A
    decoder's rows hold the answer behind the prompt: what it shall write, and an end token.
    """
    rows: list[EncodedRow] = []
    targets: list[tuple[int, ...]] = []
    best: list[np.ndarray] = []
    firsts: list[QAExample | None] = []
    encoded = encode_examples(examples, tokenizer, encoding, answers=True)
    for number, found in groupby(encoded, key=lambda row: row.example):
        windows = list(found)
        rows += windows
        targets += [(*_target(examples[number], row), window) for window, row in enumerate(windows)]
        best += max_context(windows) if len(windows) > 1 else [windows[0].offsets_TE[:, 0] >= 0]
        firsts += [examples[number], *[None] * (len(windows) - 1)]
    target_NK = np.array(targets, dtype=np.int32).reshape(-1, len(TARGETS))
    columns = token_columns(rows)
    columns |= {name: target_NK[:, k] for k, name in enumerate(TARGETS)}
    rationales = [_rationale(examples[row.example], row) for row in rows]
    columns |= {"rationale": list_column(rationales, np.uint8), "max_context": list_column(best, np.uint8)}
    fields = {name: name for name in ("id", "context", "question", "dataset")} | {"kind": "answer_type"}
    for name, attribute in fields.items():
        columns[name] = pa.array([q and getattr(q, attribute) for q in firsts], pa.string())
    columns["gold"] = pa.array([q and q.gold for q in firsts], pa.list_(pa.string()))
    columns["kept"] = pa.array([q and q.kept for q in firsts], pa.list_(pa.list_(pa.int32())))
    return pa.table(columns)


def _target(example: QAExample, row: EncodedRow) -> tuple[int, ...]:
    """Start, end, and the classes of type, number and option."""
    kind, number, option = example.answer_type, 0, 0
    if row.spans:
        return (*row.spans[0], WINDOW_TYPES.index(kind if kind in WINDOW_TYPES else "span"), 0, 0)
    if kind in ("number", "option"):
        classes = answer_classes(example.gold[0], example.question)
        number, option = (classes[0], 0) if kind == "number" else (0, classes[1])
    span = token_span(row.offsets_TE, example.answers[0]) if example.answers else None
    if span is not None:
        return (*span, WINDOW_TYPES.index("span"), number, option)
    return (
        row.cls,
        row.cls,
        WINDOW_TYPES.index(kind if kind in ("yes", "no") else "unknown"),
        number,
        option,
    )


def _rationale(example: QAExample, row: EncodedRow) -> np.ndarray:
    """Boolean (T,), True in all rationales if the window holds each of them whole."""
    mask_T = np.zeros(len(row.offsets_TE), dtype=bool)
    tokens = [token_span(row.offsets_TE, piece) for piece in example.rationale]
    if None not in tokens:
        for first, last in filter(None, tokens):
            mask_T[first : last + 1] = True
    return mask_T


def max_context(windows: Sequence[EncodedRow]) -> list[np.ndarray]:
    """Per window, boolean (T,): the context tokens that this window shows best (SQuAD's rule): with the
    largest smaller margin to its two ends, plus a hundredth of its length; the first of equals."""
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
