"""Text to tokens: windows of a long context, and character spans to token spans.

Offsets decide everything: a span is found in a window by the characters that its tokens cover, never by
searching for its text.

Shape letters: T tokens, E the two boundaries (start, end), N the tokens of several rows together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from string import Formatter
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from data_modules.encoding.tables import list_column
from data_modules.questions.answer_spans import answer_type
from data_modules.schema import DECODERS, QAExample, Span, query_text
from storage.errors import DataError

Messages = list[dict[str, str]]
"""Of a chat, each with its `role` and `content`."""

QUESTION = "Text: {context}\n\nQuestion: {advice} {question}\nAnswer:"
CHOICE = "Text: {context}\n\nQuestion: {advice} {question}\nReply with {options}.\nAnswer:"

UNKNOWN = "unknown"
"""What a decoder writes where there is no answer."""

HISTORY_TURNS = 2
"""Earlier turns of a conversation that stand before the question, as in the papers."""

UNMARKED = frozenset({"", "squad", "stories"})
"""Data sets whose questions without history stay as they are for every model."""

CHUNK = 512
"""Texts per tokenizer call: enough to keep its threads busy, few enough to stream."""


@dataclass(kw_only=True)
class Prompts:
    """What a decoder reads, as messages with `role` and `content`.

    Their slots are {advice}, {context}, {question} and, of `choice_prompt`, {options}: the two subjects in
    the order of the context. Without advice its slot goes with one space beside it, and a message that holds
    nothing else is left out. Rows are never cut.

    Args:
        prompt: Messages of a question.
        choice_prompt: Messages of a question between two subjects. If they name `unknown`, it is an answer
            too, and scores are shares among three.
        chat: Whether the tokenizer's chat template writes them: `auto` where it has one, `always` (an error
            where it has none), or `never`: they stand behind one another.
    """

    prompt: Messages = field(default_factory=lambda: [{"role": "user", "content": QUESTION}])
    choice_prompt: Messages = field(default_factory=lambda: [{"role": "user", "content": CHOICE}])
    chat: Literal["auto", "always", "never"] = "auto"

    def __post_init__(self) -> None:
        slots = ["advice", "context", "question"]
        for name, wanted in {"prompt": slots, "choice_prompt": [*slots, "options"]}.items():
            contents = [message.get("content", "") for message in getattr(self, name)]
            found = [slot for text in contents for _, slot, *_ in Formatter().parse(text) if slot is not None]
            if sorted(found) != sorted(wanted):
                raise DataError(f"encoding.prompts.{name}: needs each of {wanted} once, names {found}")


@dataclass(kw_only=True)
class Encoding:
    """How a question and its context become rows of tokens.

    Args:
        order: `question_first`, as QA checkpoints are trained, or `context_first`, as LEI's authors
            fine-tune; `auto` is context first for XLNet, whose classification token stands at the end. The
            advice stands right before the question either way.
        max_length: Tokens in a row, special tokens included; longer contexts are cut into windows.
        doc_stride: Tokens of the context from the start of one window to the start of the next.
        max_query: Longest question with its history and advice, in tokens; of a longer one the last tokens
            are kept. 0 sets no limit; `auto` is the faithfulness paper's: 64, for XLNet 128.
        prompts: What a decoder reads in place of all this but `max_length`.
        architecture: The backbone's, filled in by training.
    """

    order: Literal["auto", "question_first", "context_first"] = "question_first"
    max_length: int = 384
    doc_stride: int = 128
    max_query: int | Literal["auto"] = 0
    prompts: Prompts = field(default_factory=Prompts)
    architecture: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.prompts, dict):  # as a checkpoint holds them
            self.prompts = Prompts(**self.prompts)
        if self.doc_stride < 1:
            raise DataError(f"encoding.doc_stride must be at least 1, got {self.doc_stride}")

    @property
    def is_decoder(self) -> bool:
        """Whether rows are prompts."""
        return self.architecture in DECODERS

    @property
    def candidates(self) -> int:
        """How many answers to a question between two subjects are scored."""
        offers_unknown = any(UNKNOWN in message["content"] for message in self.prompts.choice_prompt)
        return 3 if offers_unknown else 2

    def resolved(self, architecture: str, tokenizer: Any = None) -> Encoding:
        """The same with every `auto` replaced by what it means for an architecture and a tokenizer.

        Raises:
            DataError: an encoder has prompts; or there is no chat template.
        """
        order, max_query, prompts = self.order, self.max_query, self.prompts
        if order == "auto":
            order = "context_first" if architecture == "xlnet" else "question_first"
        if max_query == "auto":
            max_query = 128 if architecture == "xlnet" else 64
        if architecture in DECODERS:
            has_template = bool(getattr(tokenizer, "chat_template", None))
            if prompts.chat == "always" and not has_template:
                raise DataError("encoding.prompts.chat: always, but the tokenizer has no chat template")
            if prompts.chat == "auto":
                prompts = replace(prompts, chat="always" if has_template else "never")
        elif prompts != Prompts():
            raise DataError(f"encoding.prompts: are for decoders, and {architecture} is an encoder")
        return replace(self, order=order, max_query=max_query, prompts=prompts, architecture=architecture)


class EncodedRow(NamedTuple):
    """One window of one question, unpadded."""

    input_ids_T: np.ndarray
    token_type_ids_T: np.ndarray
    offsets_TE: np.ndarray
    """Character offsets into the context, end-exclusive; (-1, -1) outside the context."""
    cls: int
    """Where the classification token stands: the target of questions without an answer in the window. Of a
    decoder, the prompt's last token."""
    example: int
    """Index of the question among those encoded together."""
    spans: tuple[tuple[int, int], ...] = ()
    """Of a decoder: first and last token of each text behind the prompt."""


def full_query(example: QAExample, encoding: Encoding, tokenizer: Any) -> str:
    """What an encoder reads of a question: history, advice and question (faithfulness spec 1.1.7, 1.4).

    Earlier turns are marked by |Q| and |A| for RoBERTa, stand between the begin and end of sequence for
    XLNet, which leaves out those whose answer is unknown, and one after the other for the others.
    """
    query, turns = query_text(example.question, example.advice), example.history
    if not turns and example.dataset in UNMARKED:
        return query
    xlnet = encoding.architecture == "xlnet"
    if xlnet:
        turns = tuple(turn for turn in turns if answer_type(turn.answer, turn.question) != "unknown")
    turns = turns[-HISTORY_TURNS:]
    if encoding.architecture == "roberta":
        return "".join(f"|Q| {turn.question}|A| {turn.answer}" for turn in turns) + f"|Q| {query}"
    if xlnet:
        bos, eos = tokenizer.bos_token, tokenizer.eos_token
        earlier = "".join(f"{bos} {turn.question} {eos} {turn.answer} " for turn in turns)
        return f"{earlier}{bos} {query}"
    return " ".join([f"{turn.question} {turn.answer}" for turn in turns] + [query])


def encode_texts(
    texts: Iterable[tuple[str, str, str]], tokenizer: Any, encoding: Encoding
) -> Iterator[EncodedRow]:
    """Tokenise (context, query, name) into an encoder's windows, in order: each pair once and whole; a window
    is a slice of the context's tokens with the others around it.

    Raises:
        DataError: a query that leaves no room for its context, by the name of its record.
    """
    question_first = encoding.order != "context_first"
    # RoBERTa's classification token is also its begin of sequence, XLNet's stands at the end.
    which_cls = -1 if tokenizer.padding_side == "left" else 0
    numbered = enumerate(texts)
    while items := list(islice(numbered, CHUNK)):
        contexts, queries = ([text[k] for _, text in items] for k in (0, 1))
        pairs = (queries, contexts) if question_first else (contexts, queries)
        wholes = tokenizer(*pairs, return_token_type_ids=True, verbose=False).encodings
        # Converting all rows at once is several times faster than each by itself.
        lengths = [len(whole.ids) for whole in wholes]
        count = sum(lengths)
        ids_N = np.fromiter(chain.from_iterable(whole.ids for whole in wholes), np.int32, count)
        types_N = np.fromiter(chain.from_iterable(whole.type_ids for whole in wholes), np.uint8, count)
        ends = chain.from_iterable(chain.from_iterable(whole.offsets for whole in wholes))
        offsets_NE = np.fromiter(ends, np.int32, 2 * count).reshape(-1, 2)
        sides = chain.from_iterable(whole.sequence_ids for whole in wholes)
        side_N = np.fromiter((-1 if side is None else side for side in sides), np.int8, count)
        offsets_NE[side_N != int(question_first)] = -1
        is_cls_N = (ids_N == tokenizer.cls_token_id) & (side_N == -1)
        start = 0
        for (example, (_, _, name)), length in zip(items, lengths, strict=True):
            for place_T in _windows(side_N[start : start + length], int(question_first), encoding, name):
                at = start + place_T
                cls = int(np.flatnonzero(is_cls_N[at])[which_cls])
                yield EncodedRow(ids_N[at], types_N[at], offsets_NE[at], cls, example)
            start += length


def _windows(side_T: np.ndarray, context: int, encoding: Encoding, name: str) -> Iterator[np.ndarray]:
    """The places of each window's tokens in a whole row; `side_T` is `context` in the context, -1 at special
    tokens."""
    assert encoding.max_query != "auto", "an Encoding is used once it is resolved"
    context_T, query_T = np.flatnonzero(side_T == context), np.flatnonzero(side_T == 1 - context)
    if encoding.max_query:
        query_T = query_T[-encoding.max_query :]
    others_T = np.concatenate([np.flatnonzero(side_T == -1), query_T])
    room = encoding.max_length - len(others_T)
    if room < 1:
        raise DataError(
            f"{name}: the question with its advice takes {len(query_T)} tokens, which leaves no room for the "
            f"context in {encoding.max_length} tokens; raise encoding.max_length"
        )
    step = min(encoding.doc_stride, room)
    for start in range(0, max(1, len(context_T) - room + step), step):
        yield np.sort(np.concatenate([others_T, context_T[start : start + room]]))


def token_span(offsets_TE: np.ndarray, span: Span) -> tuple[int, int] | None:
    """First and last token of a span; None if the window does not hold it all. White space at the span's
    ends does not count: it may belong to no token."""
    start = span.start + len(span.text) - len(span.text.lstrip())
    end = start + len(span.text.strip())
    inside = np.flatnonzero(
        (offsets_TE[:, 0] < end) & (offsets_TE[:, 1] > start) & (offsets_TE[:, 1] > offsets_TE[:, 0])
    )
    if not len(inside):
        return None
    first, last = int(inside[0]), int(inside[-1])
    if offsets_TE[first, 0] > start or offsets_TE[last, 1] < end:
        return None
    return first, last


def token_columns(rows: Sequence[EncodedRow], prefix: str = "") -> dict[str, pa.Array]:
    """The columns of rows of tokens, their names with a prefix."""
    return {
        f"{prefix}input_ids": list_column([row.input_ids_T for row in rows], np.int32),
        f"{prefix}token_type_ids": list_column([row.token_type_ids_T for row in rows], np.uint8),
        f"{prefix}offsets": list_column([row.offsets_TE.reshape(-1) for row in rows], np.int32),
        f"{prefix}cls": pa.array([row.cls for row in rows], pa.int32()),
    }
