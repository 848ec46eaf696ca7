"""Text to tokens: windows of a long context, and character spans to token spans.

Offsets decide everything: a span is found in a window by the characters that its tokens cover, never by
searching for its text.

Shape letters: T tokens, V variants of a group (4), S subjects (2), E the two boundaries (start, end).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from tqdm.auto import tqdm

from data_modules.schema import DataError, Group, QAExample, Span

_CHUNK = 512
"""Texts per tokenizer call: enough to keep its threads busy, few enough to stream."""


@dataclass(kw_only=True)
class Encoding:
    """How a question and its context become a row of tokens.

    Args:
        order: `question_first`, as QA checkpoints are trained, or `context_first`, as LEI's authors
            fine-tune. The advice stands right before the question either way.
        max_length: Tokens in a row, special tokens included; longer contexts are cut into windows.
        stride: Tokens that consecutive windows of one context share.
        pad_to_multiple_of: Rows of a batch are padded to a common length that is a multiple of this.
    """

    order: Literal["question_first", "context_first"] = "question_first"
    max_length: int = 384
    stride: int = 128
    pad_to_multiple_of: int = 16

    def __post_init__(self) -> None:
        if not 0 <= self.stride < self.max_length:
            raise DataError(
                f"encoding.stride must lie in 0 .. max_length - 1, got {self.stride} of {self.max_length}"
            )
        if self.pad_to_multiple_of < 1:
            raise DataError(f"encoding.pad_to_multiple_of must be at least 1, got {self.pad_to_multiple_of}")


class EncodedRow(NamedTuple):
    """One window of one question, unpadded."""

    input_ids_T: np.ndarray
    token_type_ids_T: np.ndarray
    offsets_TE: np.ndarray
    """Character offsets into the context, end-exclusive; (-1, -1) outside the context."""
    cls: int
    """Where the classification token stands: the target of questions without an answer in the window."""
    example: int
    """Index of the question among those encoded together."""


class QAFeature(NamedTuple):
    """A window with its gold token span (the classification token when the answer is not in it)."""

    row: EncodedRow
    start: int
    end: int


class GroupFeature(NamedTuple):
    """The four rows of a group and where its two subjects stand in them."""

    rows: tuple[EncodedRow, ...]
    candidate_VSE: np.ndarray


def query_text(question: str, advice: str) -> str:
    """The question with its advice right before it."""
    return f"{advice} {question}" if advice else question


def encode_texts(
    texts: Iterable[tuple[str, str, str]], tokenizer: Any, encoding: Encoding
) -> Iterator[EncodedRow]:
    """Tokenise (context, query, name) triples into windows, in order.

    Raises:
        DataError: a query that leaves no room for its context, by the name of its record.
    """
    first, done = [], 0
    for item in texts:
        first.append(item)
        if len(first) == _CHUNK:
            yield from _encode_chunk(first, done, tokenizer, encoding)
            done, first = done + len(first), []
    if first:
        yield from _encode_chunk(first, done, tokenizer, encoding)


def _encode_chunk(
    items: Sequence[tuple[str, str, str]], base: int, tokenizer: Any, encoding: Encoding
) -> Iterator[EncodedRow]:
    contexts, queries = [item[0] for item in items], [item[1] for item in items]
    question_first = encoding.order == "question_first"
    pair = (queries, contexts) if question_first else (contexts, queries)
    try:
        encoded = tokenizer(
            *pair,
            truncation="only_second" if question_first else "only_first",
            max_length=encoding.max_length,
            stride=encoding.stride,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            return_token_type_ids=True,
        )
    except BaseException as error:  # the tokenizers library raises bare Exception and panics alike
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        longest = max(items, key=lambda item: len(item[1]))
        raise DataError(
            f"{longest[2]}: the question with its advice leaves too little room for the context in "
            f"{encoding.max_length} tokens with stride {encoding.stride} (longest query: "
            f"{len(longest[1])} characters); raise encoding.max_length"
        ) from error
    context_side = 1 if question_first else 0
    for i, sample in enumerate(encoded["overflow_to_sample_mapping"]):
        ids = np.asarray(encoded["input_ids"][i], dtype=np.int32)
        offsets = np.asarray(encoded["offset_mapping"][i], dtype=np.int32).reshape(-1, 2)
        side = np.array([-1 if s is None else s for s in encoded.sequence_ids(i)], dtype=np.int8)
        offsets[side != context_side] = -1
        types = np.asarray(encoded["token_type_ids"][i], dtype=np.uint8)
        cls = int(np.flatnonzero(ids == tokenizer.cls_token_id)[0])
        yield EncodedRow(ids, types, offsets, cls, base + sample)


def token_span(offsets_TE: np.ndarray, start: int, end: int) -> tuple[int, int] | None:
    """First and last token of the characters start .. end - 1; None if the window does not hold them all."""
    inside = np.flatnonzero(
        (offsets_TE[:, 0] < end) & (offsets_TE[:, 1] > start) & (offsets_TE[:, 1] > offsets_TE[:, 0])
    )
    if not len(inside):
        return None
    first, last = int(inside[0]), int(inside[-1])
    if offsets_TE[first, 0] > start or offsets_TE[last, 1] < end:
        return None
    return first, last


def whole_span(span: Span, context: str, row: EncodedRow, where: str) -> tuple[int, int] | None:
    """First and last token of `span`; None if the window does not hold it.

    Raises:
        DataError: its first or last token reaches beyond it; `where` names the record.
    """
    found = token_span(row.offsets_TE, span.start, span.end)
    if found is None:
        return None
    covered = context[row.offsets_TE[found[0], 0] : row.offsets_TE[found[1], 1]]
    if covered.strip() != span.text.strip():
        raise DataError(
            f"{where}: the tokenizer cuts {span.text!r}: its tokens cover {covered!r} in {context!r}"
        )
    return found


def encode_qa(examples: Sequence[QAExample], tokenizer: Any, encoding: Encoding) -> list[QAFeature]:
    """Windows of every example, with the first answer as target."""
    texts = ((ex.context, query_text(ex.question, ex.advice), ex.id) for ex in examples)
    features = []
    for row in _progress(encode_texts(texts, tokenizer, encoding), len(examples), "tokenising questions"):
        answers = examples[row.example].answers
        span = token_span(row.offsets_TE, *_trimmed(answers[0])) if answers else None
        start, end = span if span is not None else (row.cls, row.cls)
        features.append(QAFeature(row, start, end))
    return features


def _trimmed(span: Span) -> tuple[int, int]:
    """Start and end without white space at either side, to which no token may belong."""
    start = span.start + len(span.text) - len(span.text.lstrip())
    return start, start + len(span.text.strip())


def encode_groups(groups: Sequence[Group], tokenizer: Any, encoding: Encoding) -> list[GroupFeature]:
    """The four variants of every group, each in exactly one row.

    Raises:
        DataError: a context longer than a window, or a subject whose first or last token reaches beyond
            it (the tokenizer glues it to its neighbour): named, never scored as something else.
    """
    texts = ((v.context, query_text(v.question, v.advice), g.key) for g in groups for v in g.variants)
    rows: list[EncodedRow] = []
    total = 4 * len(groups)
    for row in _progress(encode_texts(texts, tokenizer, encoding), total, "tokenising groups"):
        if row.example != len(rows):
            group = groups[row.example // 4]
            raise DataError(
                f"{group.key}: the context does not fit into {encoding.max_length} tokens with its question; "
                "raise encoding.max_length"
            )
        rows.append(row)
    return [
        GroupFeature(tuple(rows[4 * i : 4 * i + 4]), _candidates(group, rows[4 * i : 4 * i + 4]))
        for i, group in enumerate(groups)
    ]


def _candidates(group: Group, rows: Sequence[EncodedRow]) -> np.ndarray:
    candidate_VSE = np.empty((4, 2, 2), dtype=np.int64)
    for v, (variant, row) in enumerate(zip(group.variants, rows, strict=True)):
        for s, span in enumerate(variant.candidates):
            candidate_VSE[v, s] = _candidate(span, variant.context, row, group.key)
    return candidate_VSE


def _candidate(span: Span, context: str, row: EncodedRow, key: str) -> tuple[int, int]:
    found = whole_span(span, context, row, key)
    if found is None:
        raise DataError(f"{key}: the window does not hold the subject {span.text!r} of {context!r}")
    return found


def _progress(rows: Iterator[EncodedRow], total: int, what: str) -> Iterator[EncodedRow]:
    """A bar over questions (a question may have several windows); silent where a blink suffices."""
    with tqdm(total=total, desc=what, unit="q", disable=None if total > 5000 else True) as bar:
        for row in rows:
            bar.update(row.example + 1 - bar.n)
            yield row
