"""Text to tokens: windows of a long context, character spans to token spans, and padding of rows.

Shape letters: R rows, T tokens, N tokens of several rows, W windows of a question, C characters, E
the two boundaries (start, end).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from string import Formatter
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from interventune.data_modules.schema.questions import Span
from interventune.storage.documents import DataError

Messages = list[dict[str, str]]
"""Messages of a chat, each with its `role` and `content`."""

QUESTION = "Text: {context}\n\nQuestion: {advice} {question}\nAnswer:"
CHOICE = "Text: {context}\n\nQuestion: {advice} {question}\nReply with {options}.\nAnswer:"

DECODERS = frozenset({"llama", "qwen2", "qwen3", "gpt2", "causal"})
"""Architectures that read prompts (data_modules/encoding/prompts.py), unlike encoders."""

UNKNOWN = "unknown"
"""The text that a decoder writes if there is no answer."""

CHUNK = 512
"""Number of records or texts encoded together: enough to keep tokenizers busy without filling the
memory.
"""

PAD_TO = 8
"""Lengths of batches are multiples of this, to limit the number of shapes."""

Batches = list[list[int]]
"""The indices of the samples of every batch."""

Inputs = dict[str, Tensor]
"""`input_ids`, `attention_mask`, `token_type_ids`, each (B, T); a model ignores those it does not
take.
"""

HISTORY_TURNS = 2
"""Number of earlier turns of a conversation put before the question, as in the papers."""


@dataclass(kw_only=True)
class Prompts:
    """A decoder's prompt, as messages with `role` and `content`.

    The slots are {advice}, {context}, {question} and, in `choice_prompt`, {options}: the two
    subjects in the order of the context. Without advice, its slot is removed with one adjacent
    space, and a message that contains nothing else is left out. Rows are never cut.

    Args:
        prompt: Messages for a question.
        choice_prompt: Messages for a question about two subjects. If they contain `unknown`, it is
            a third answer, and scores are shares among three.
        turn: An earlier turn of a conversation; they come before the line with the question.
        options: What {options} stands for, with a place for each subject.
        chat: Whether to use the tokenizer's chat template: `auto`, if there is one, or `never`:
            messages are joined.
    """

    prompt: Messages = field(default_factory=lambda: [{"role": "user", "content": QUESTION}])
    choice_prompt: Messages = field(default_factory=lambda: [{"role": "user", "content": CHOICE}])
    turn: str = "Question: {question}\nAnswer: {answer}\n"
    options: str = "{} or {}"
    chat: Literal["auto", "never"] = "auto"

    def __post_init__(self) -> None:
        slots = ["advice", "context", "question"]
        for name, needed in {"prompt": slots, "choice_prompt": [*slots, "options"]}.items():
            text = "".join(message.get("content", "") for message in getattr(self, name))
            named = [slot for _, slot, *_ in Formatter().parse(text) if slot is not None]
            if sorted(named) != sorted(needed):
                raise DataError(
                    f"encoding.prompts.{name}: needs each of {needed} once, names {named}"
                )

    @property
    def candidates(self) -> int:
        """The number of candidate answers to a question between two subjects."""
        unknown = any(UNKNOWN in message["content"] for message in self.choice_prompt)
        return 3 if unknown else 2


@dataclass(kw_only=True)
class Encoding:
    """How a question and its context become rows of tokens.

    Args:
        order: `question_first`, as in most QA checkpoints, or `context_first`, as in LEI. `auto` is
            context first for XLNet, whose classification token comes last. Advice always precedes
            the question.
        max_length: Tokens in a row, with special tokens; longer contexts are cut into windows.
        doc_stride: Tokens between the starts of two windows; half a window if they would not
            overlap.
        max_query: Maximum length of the question with its history and advice, in tokens; the last
            ones are kept. 0: no limit; `auto`: the faithfulness paper's 64, for XLNet 128.
        prompts: What a decoder reads instead; of the above only `max_length` applies.
        architecture: Set by the backbone.
    """

    order: Literal["auto", "question_first", "context_first"] = "question_first"
    max_length: int = 384
    doc_stride: int = 128
    max_query: int | Literal["auto"] = 0
    prompts: Prompts = field(default_factory=Prompts)
    architecture: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.prompts, dict):  # as stored in a checkpoint
            self.prompts = Prompts(**self.prompts)
        # No PositiveInt: checkpoints store plain values.
        if self.doc_stride < 1 or (self.max_query != "auto" and self.max_query < 0):
            raise DataError(
                "encoding.doc_stride must be at least 1, encoding.max_query at least 0 (no limit)"
            )

    def within(self, limit: int) -> "Encoding":
        """Return the options for a model with so many positions; windows and stride shrink."""
        if self.max_length <= limit:
            return self
        return replace(
            self, max_length=limit, doc_stride=max(1, self.doc_stride * limit // self.max_length)
        )

    def resolved(self, architecture: str) -> "Encoding":
        """Replace every `auto` by its value for an architecture.

        DataError for an encoder with prompts.
        """
        if architecture not in DECODERS and self.prompts != Prompts():
            raise DataError(f"encoding.prompts: are for decoders, and {architecture} is an encoder")
        xlnet = architecture == "xlnet"
        resolved = replace(self, architecture=architecture)
        if self.order == "auto":
            resolved.order = "context_first" if xlnet else "question_first"
        if self.max_query == "auto":
            resolved.max_query = 128 if xlnet else 64
        return resolved


class EncodedRow(NamedTuple):
    """One window of one question, unpadded."""

    input_ids_T: ndarray
    token_type_ids_T: ndarray
    offsets_TE: ndarray
    """Character offsets into the context, end-exclusive; (-1, -1) outside the context."""
    cls: int
    """Index of the classification token, the target if the window has no answer; for a decoder, of
    the prompt's last token.
    """
    example: int
    """Index of the question in the encoded sequence."""
    spans: tuple[tuple[int, int], ...] = ()
    """For a decoder: first and last token of each text after the prompt."""
    reach: tuple[float, float] = (-inf, inf)
    """The characters of the context between the tokens before and after this window."""


def encode_texts(
    texts: Iterable[tuple[str, str, str]], tokenizer: Any, encoding: Encoding
) -> Iterator[EncodedRow]:
    """Tokenise (context, query, name) into an encoder's windows, in order.

    Each pair is tokenised once; a window is a slice of the context's tokens with the query and
    special tokens around it. DataError, with the record's name, for a query that leaves no room for
    its context.
    """
    context = encoding.order != "context_first"  # index of the context in the pair
    # RoBERTa's classification token also begins the sequence; XLNet's is at the end.
    which_cls = -1 if tokenizer.padding_side == "left" else 0
    every = list(texts)
    for first in range(0, len(every), CHUNK):
        contexts, queries, names = map(list, zip(*every[first : first + CHUNK], strict=True))
        pairs = (queries, contexts) if context else (contexts, queries)
        encoded = tokenizer(*pairs, return_token_type_ids=True, verbose=False).encodings
        for i, (text, name, pair) in enumerate(zip(contexts, names, encoded, strict=True), first):
            ids_T = np.array(pair.ids, np.int32)
            types_T = np.array(pair.type_ids, np.uint8)
            side_T = np.array(pair.sequence_ids, float)  # NaN for special tokens
            offsets_TE = np.array(pair.offsets, np.int32)
            offsets_TE[side_T != context] = -1
            special_T = np.isnan(side_T)
            is_cls_T = special_T & (ids_T == tokenizer.cls_token_id)
            context_T = np.flatnonzero(side_T == context)
            query_T = np.flatnonzero(side_T == 1 - context)[-int(encoding.max_query) :]
            others_T = np.concatenate([np.flatnonzero(special_T), query_T])
            room = encoding.max_length - len(others_T)
            if room < 1:
                raise DataError(
                    f"{name}: the question with its advice takes {len(query_T)} tokens, which "
                    f"leaves no room for the context in {encoding.max_length} tokens; raise "
                    "encoding.max_length"
                )
            step = encoding.doc_stride if encoding.doc_stride < room else -(-room // 2)
            for start in range(0, max(1, len(context_T) - room + step), step):
                at_T = np.sort(np.concatenate([others_T, context_T[start : start + room]]))
                before = offsets_TE[context_T[:start], 1].max(initial=-1)
                after = offsets_TE[context_T[start + room :], 0].min(initial=len(text))
                yield EncodedRow(
                    ids_T[at_T],
                    types_T[at_T],
                    offsets_TE[at_T],
                    cls=int(np.flatnonzero(is_cls_T[at_T])[which_cls]),
                    example=i,
                    reach=(before, after),
                )


def token_span(row: EncodedRow, span: Span) -> tuple[int, int] | None:
    """Return first and last token of a span; None if the window does not contain all of it.
    Characters at the span's ends that belong to no token (white space, marks that the tokenizer
    drops) are ignored.
    """
    start = span.start + len(span.text) - len(span.text.lstrip())
    end = start + len(span.text.strip())
    start_T, end_T = row.offsets_TE.T
    inside = np.flatnonzero((start_T < end) & (end_T > start) & (end_T > start_T))
    if not len(inside):
        return None
    first, last = inside[[0, -1]].tolist()
    before, after = row.reach
    if start < min(before, start_T[first]) or end > max(after, end_T[last]):
        return None
    return first, last


def max_context(windows: Sequence[EncodedRow]) -> list[ndarray]:
    """Per window, boolean (T,): the context tokens that it shows best by SQuAD's rule.

    The smaller margin to its two ends is largest, plus a hundredth of its length; the first on
    ties.
    """
    starts = [row.offsets_TE[:, 0] for row in windows]
    score_C = np.full(max(start_T.max() for start_T in starts) + 2, -1.0)
    best_C = np.zeros(len(score_C), np.int64)
    for w, start_T in enumerate(starts):
        inside_T = start_T[start_T >= 0]
        place_T = np.arange(len(inside_T))
        margin_T = np.minimum(place_T, place_T[::-1])
        before_T = score_C[inside_T]
        np.maximum.at(score_C, inside_T, margin_T + 0.01 * len(inside_T))
        best_C[inside_T[score_C[inside_T] > before_T]] = w
    return [(start_T >= 0) & (best_C[start_T] == w) for w, start_T in enumerate(starts)]


def sorted_batches(lengths: Sequence[int] | ndarray, batch_size: int) -> Batches:
    """Batch every index once, longest first, so that memory runs out at once."""
    return chunks(np.argsort(-np.asarray(lengths), kind="stable").tolist(), batch_size)


def chunks(order: Sequence[int], batch_size: int) -> Batches:
    """Cut indices into batches; the last may be smaller."""
    return [[*order[i : i + batch_size]] for i in range(0, len(order), batch_size)]


def padded(
    tokenizer: Any,
    ids_N: ndarray,
    types_N: ndarray,
    length_R: ndarray,
    *,
    multiple: int = PAD_TO,
    **masks_N: ndarray,
) -> tuple[Inputs, Tensor, dict[str, Tensor]]:
    """Pad rows, given as concatenated tokens, on the tokenizer's side, to a multiple in length.

    Returns:
        Inputs (R, T), columns of padding before each row (R,), and masks (R, T), False at padding.
    """
    width = -(-int(length_R.max()) // multiple) * multiple
    shift_R = (width - length_R) * (tokenizer.padding_side == "left")
    column_T = np.arange(width)
    inside_RT = (column_T >= shift_R[:, None]) & (column_T < (shift_R + length_R)[:, None])

    def rows_of(values_N: Any, padding: Any, dtype: type) -> Tensor:
        rows_RT = np.full(inside_RT.shape, padding, dtype)
        rows_RT[inside_RT] = values_N
        return torch.from_numpy(rows_RT)

    inputs = {
        "input_ids": rows_of(ids_N, tokenizer.pad_token_id, np.int64),
        "attention_mask": rows_of(1, 0, np.int64),
        "token_type_ids": rows_of(types_N, tokenizer.pad_token_type_id, np.int64),
    }
    masks = {name: rows_of(mask_N, False, bool) for name, mask_N in masks_N.items()}
    return inputs, torch.from_numpy(shift_R), masks


def pad_rows(
    rows: Sequence[EncodedRow], tokenizer: Any, multiple: int = PAD_TO
) -> tuple[Inputs, Tensor, Tensor]:
    """Return inputs (R, T), context (R, T), and the number of padding columns before rows (R,).

    The context is True at its tokens.
    """
    ids_N, types_N, offsets_NE = (
        np.concatenate([row[column] for row in rows]) for column in range(3)
    )
    length_R = np.array([len(row.input_ids_T) for row in rows])
    inputs, shift_R, masks = padded(
        tokenizer, ids_N, types_N, length_R, multiple=multiple, context=offsets_NE[:, 0] >= 0
    )
    return inputs, masks["context"], shift_R
