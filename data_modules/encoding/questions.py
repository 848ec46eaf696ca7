"""Questions to a table: a row holds a window in tokens with its targets, and the first row of a question
itself too.

Shape letters: T tokens, W windows, C characters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from data_modules.encoding.tables import BYTES, INTS, MASK, TEXTS
from data_modules.encoding.windows import EncodedRow, Encoding, encode_texts, full_query, token_span
from data_modules.questions.answer_spans import answer_type
from data_modules.schema import AnswerType, QAExample

WINDOW_TYPES: tuple[AnswerType, ...] = ("yes", "no", "unknown", "span")
"""The targets of a window, in the order of the models' type scores; numbers and options are spans."""

TARGETS = ("start", "end", "answer_type", "number", "option")

ROWS = pa.schema(
    {"input_ids": INTS, "token_type_ids": BYTES, "offsets": INTS}  # of offsets two a token
    | dict.fromkeys(("cls", *TARGETS, "window"), pa.int32())  # which of its question's windows it is
    | {"rationale": MASK, "max_context": MASK}
    | dict.fromkeys(("id", "context", "question", "dataset", "kind"), pa.string())
    | {"gold": TEXTS, "kept": pa.list_(INTS)}
)


def encode_examples(
    examples: Sequence[QAExample], tokenizer: Any, encoding: Encoding, *, answers: bool = False
) -> Iterator[EncodedRow]:
    """The windows of questions, in order; with `answers`, a decoder's rows end in what it shall write."""
    if encoding.is_decoder:
        from data_modules.encoding.prompts import encode_prompts, question_prompts

        prompts = question_prompts(examples, encoding, answers=answers)
        return encode_prompts(prompts, tokenizer, encoding, end=answers)
    texts = ((ex.context, full_query(ex, encoding, tokenizer), ex.id) for ex in examples)
    return encode_texts(texts, tokenizer, encoding)


def encode_questions(examples: Sequence[QAExample], tokenizer: Any, encoding: Encoding) -> pa.Table:
    """Windows of every example, with the first answer as target.

    A question whose answer is not in the window is unknown there, and its span the classification token
    (faithfulness spec 1.3). A decoder's rows hold the answer behind the prompt: what it shall write, and an
    end token.
    """
    rows: list[dict[str, Any]] = []
    encoded = encode_examples(examples, tokenizer, encoding, answers=True)
    for number, found in groupby(encoded, key=lambda row: row.example):
        example, windows = examples[number], list(found)
        for window, (row, best_T) in enumerate(zip(windows, max_context(windows), strict=True)):
            rows.append(
                {
                    "input_ids": row.input_ids_T,
                    "token_type_ids": row.token_type_ids_T,
                    "offsets": row.offsets_TE.reshape(-1),
                    "cls": row.cls,
                    **dict(zip(TARGETS, _target(example, row), strict=True)),
                    "rationale": _rationale(example, row),
                    "max_context": best_T,
                    "window": window,
                }
            )
        names = ("id", "context", "question", "dataset", "gold", "kept")
        rows[-len(windows)] |= {name: getattr(example, name) for name in names}
        rows[-len(windows)]["kind"] = example.answer_type
    return pa.Table.from_pylist(rows, ROWS)


def _target(example: QAExample, row: EncodedRow) -> tuple[int, ...]:
    """Start, end, and the classes of type, number and option."""
    kind, number, option = example.answer_type, 0, 0
    if row.spans:
        return (*row.spans[0], WINDOW_TYPES.index(kind if kind in WINDOW_TYPES else "span"), 0, 0)
    if kind in ("number", "option"):
        found, place = answer_type(example.gold[0], example.question)
        number, option = (place, 0) if found == "number" else (0, place)
    span = token_span(row.offsets_TE, example.answers[0]) if example.answers else None
    if span is not None:
        return (*span, WINDOW_TYPES.index("span"), number, option)
    kind = kind if kind in ("yes", "no") else "unknown"
    return (row.cls, row.cls, WINDOW_TYPES.index(kind), number, option)


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
    starts = [row.offsets_TE[:, 0] for row in windows]
    score_WC = np.full((len(windows), max(start_T.max() for start_T in starts) + 2), -1.0)
    for score_C, start_T in zip(score_WC, starts, strict=True):
        inside_T = start_T[start_T >= 0]
        place_T = np.arange(len(inside_T))
        margin_T = np.minimum(place_T, place_T[::-1])
        np.maximum.at(score_C, inside_T, margin_T + 0.01 * len(inside_T))
    best_C = score_WC.argmax(axis=0)
    return [(start_T >= 0) & (best_C[start_T] == w) for w, start_T in enumerate(starts)]
