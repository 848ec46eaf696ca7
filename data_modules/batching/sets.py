"""Questions, tokenised into windows, and their batches.

A row has a window's tokens and targets, and each question's first row also has the question.

Shape letters: B batch, T tokens, N windows of a set, Q questions.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy import ndarray
from torch import Tensor

from interventune.data_modules.encoding.tokenizers import warn_of_unknown
from interventune.data_modules.encoding.windows import (
    CHUNK,
    DECODERS,
    HISTORY_TURNS,
    Batches,
    EncodedRow,
    Encoding,
    Inputs,
    encode_texts,
    max_context,
    padded,
    token_span,
)
from interventune.data_modules.questions.answer_spans import answer_type
from interventune.data_modules.schema.questions import AnswerType, QAExample, traits

WINDOW_TYPES = ("yes", "no", "unknown", "span")
"""The targets of a window, in the order of the models' type scores; numbers and options
are spans.
"""

NO_ANSWER = WINDOW_TYPES.index("unknown")

HIDDEN = "no window shows the answer"
"""Why a question is rejected: every window cuts its answer, or the text does not contain it."""

TARGETS = ("start", "end", "answer_type", "number", "option")

INTS = pa.list_(pa.int32())
MASK = pa.list_(pa.bool_())
ROWS = pa.schema(
    {"input_ids": INTS, "token_type_ids": pa.list_(pa.uint8())}
    # offsets: two per token; story: number of context tokens
    | {"offsets": INTS, "rationale": MASK, "max_context": MASK}
    | dict.fromkeys(("cls", *TARGETS, "story"), pa.int64())
    # Of a question, in the row of its first window.
    | dict.fromkeys(("id", "context", "question", "dataset", "kind"), pa.string())
    | {"gold": pa.list_(pa.string()), "kept": pa.list_(INTS), "hidden": pa.bool_()}
)

Tokens = list[tuple[int, int, int]]
"""Start, end and id of every token of a row; start and end are -1 outside the context."""


class QABatch(NamedTuple):
    """Windows of questions."""

    inputs: Inputs
    start_B: Tensor
    end_B: Tensor
    context_BT: Tensor
    """True at context tokens, which are allowed in an answer."""
    cls_B: Tensor
    shift_B: Tensor
    """Number of padding columns before the row: subtract it to get token indices of the unpadded
    row.
    """
    feature_B: Tensor
    """Index of the window in its data set."""
    answer_type_B: Tensor
    """Target of the window, index into sets.WINDOW_TYPES."""
    number_B: Tensor
    option_B: Tensor
    """XLNet's number and option classes."""
    rationale_BT: Tensor
    """True at rationale tokens."""
    max_context_BT: Tensor
    """True where an answer may begin: context tokens that no other window shows with
    more context.
    """


TURNS = {
    "roberta": ("|Q| {question}|A| {answer}", "|Q| {question}"),
    "xlnet": ("{bos_token} {question} {eos_token} {answer} ", "{bos_token} {question}"),
}
"""By architecture, how an earlier turn of a conversation and the question itself are written."""


def full_query(example: QAExample, encoding: Encoding, tokenizer: Any) -> str:
    """Return what an encoder reads before the context: history, advice and question.

    Earlier turns are marked with |Q| and |A| for RoBERTa; for XLNet they are enclosed in the tokens
    for begin and end of sequence, without turns answered unknown; for other models they are
    concatenated (Chaturvedi et al. 2023, section 4.2, and the authors' code).
    """
    turns = [*example.history]
    if not turns and not traits(example.dataset).conversation:
        return example.query
    if encoding.architecture == "xlnet":
        turns = [turn for turn in turns if answer_type(turn.answer, "")[0] != "unknown"]
    earlier, last = TURNS.get(encoding.architecture, ("{question} {answer} ", "{question}"))
    special = tokenizer.special_tokens_map
    texts = [earlier.format(**asdict(turn), **special) for turn in turns[-HISTORY_TURNS:]]
    return "".join([*texts, last.format(question=example.query, **special)])


def encode_examples(
    examples: Sequence[QAExample], tokenizer: Any, encoding: Encoding, *, answers: bool = False
) -> Iterator[EncodedRow]:
    """Yield the windows of questions, in order; `answers`: a decoder's rows include the target."""
    if encoding.architecture in DECODERS:
        from interventune.data_modules.encoding.prompts import encode_prompts, question_prompts

        prompts = question_prompts(examples, encoding.prompts, answers=answers)
        return encode_prompts(prompts, tokenizer, encoding, end=answers)
    texts = ((ex.context, full_query(ex, encoding, tokenizer), ex.id) for ex in examples)
    return encode_texts(texts, tokenizer, encoding)


def encode_questions(
    examples: Sequence[QAExample],
    tokenizer: Any,
    encoding: Encoding,
    rejected: Counter[str] | None = None,
    *,
    answers: bool = True,
    hidden: bool = True,
) -> datasets.Dataset:
    """Return windows of every example, with the first of its answers that they show as target.

    The table's description has the numbers of examples `rejected` before, by reason; without
    `hidden`, those whose answers no window shows are among them.

    In a window without an answer, the target type is unknown and the span is the classification
    token, as in the code of Chaturvedi et al. 2023. With `answers`, a decoder's rows include the
    target answer after the prompt, and an end token.
    """
    rejected = Counter(rejected)
    tables = []
    rows = []
    encoded = encode_examples(examples, tokenizer, encoding, answers=answers)
    for number, windows in groupby(encoded, key=attrgetter("example")):
        question = question_rows(examples[number], list(windows))
        if question[0]["hidden"] and not hidden:
            rejected[HIDDEN] += 1
            continue
        rows += question
        if len(rows) >= CHUNK:
            tables.append(pa.Table.from_pylist(rows, ROWS))
            rows = []
    table = pa.concat_tables([*tables, pa.Table.from_pylist(rows, ROWS)])
    info = datasets.DatasetInfo(description=json.dumps(rejected))
    return datasets.Dataset(table, info, fingerprint="in memory").with_format("arrow")


def question_rows(example: QAExample, windows: Sequence[EncodedRow]) -> list[dict[str, Any]]:
    """Return the rows of a question's windows (`ROWS`)."""
    rows = [
        {
            "input_ids": row.input_ids_T,
            "token_type_ids": row.token_type_ids_T,
            "offsets": row.offsets_TE.reshape(-1),
            "cls": row.cls,
            "rationale": rationale_mask(example, row),
            "max_context": best_T,
            "story": np.sum(row.offsets_TE[:, 0] >= 0),
            **target(example, row),
        }
        for row, best_T in zip(windows, max_context(windows), strict=True)
    ]
    names = ("id", "context", "question", "dataset", "gold", "kept")
    rows[0] |= {name: getattr(example, name) for name in names} | {
        "kind": example.answer_type,
        "hidden": example.answer_type != "unknown"
        and all(row["answer_type"] == NO_ANSWER for row in rows),
    }
    return rows


def target(example: QAExample, row: EncodedRow) -> dict[str, int]:
    """Return a window's target: the answer's tokens, and classes of type, number and option."""
    kind = example.answer_type
    number = 0
    option = 0
    if kind in ("number", "option"):
        name, place = answer_type(example.gold[0], example.question)
        number, option = (place, 0) if name == "number" else (0, place)
    if row.spans:
        span = row.spans[0]
    elif shown := [*filter(None, (token_span(row, answer) for answer in example.answers))]:
        span = shown[0]
        kind = "span"
    else:
        span = (row.cls, row.cls)
        kind = kind if kind in ("yes", "no") else "unknown"
    type_class = WINDOW_TYPES.index(kind if kind in WINDOW_TYPES else "span")
    return dict(zip(TARGETS, (*span, type_class, number, option), strict=True))


def rationale_mask(example: QAExample, row: EncodedRow) -> ndarray:
    """Boolean (T,): the rationale's tokens, if the window contains all of its pieces."""
    mask_T = np.zeros(len(row.offsets_TE), dtype=bool)
    spans = [token_span(row, piece) for piece in example.rationale]
    if None not in spans:
        for start, last in filter(None, spans):
            mask_T[start : last + 1] = True
    return mask_T


def column(table: pa.Table, name: str) -> ndarray:
    """Return all values of a column of numbers, or of a column of lists, concatenated."""
    values = table[name].combine_chunks()
    values = values.flatten() if pa.types.is_list(values.type) else values
    return values.to_numpy(zero_copy_only=False)


class Question(NamedTuple):
    """The fields of a question needed for decoding and scoring."""

    id: str
    context: str
    question: str
    gold: list[str]
    kind: AnswerType
    """Type of the answer."""
    dataset: str


class QASet:
    """Extractive questions, tokenised into windows: from records, or from their table.

    A span model may leave a question unanswered if `may_abstain`, by default if the set has a
    question without an answer.
    """

    family = "qa"  # in the keys of metrics

    def __init__(
        self,
        data: Sequence[QAExample] | datasets.Dataset,
        tokenizer: Any,
        encoding: Encoding,
        *,
        may_abstain: bool | None = None,
        answers: bool = True,
    ) -> None:
        if not isinstance(data, datasets.Dataset):
            data = encode_questions(data, tokenizer, encoding, answers=answers)
        self.table = data
        self.tokenizer = tokenizer
        rows = data.data
        warn_of_unknown(tokenizer, [column(rows.slice(0, 999), "input_ids")])
        self.lengths = pc.list_value_length(rows["input_ids"]).to_numpy().astype(np.int64)
        """Length of every window in tokens, (N,)."""
        self.tokens_N = {
            "answer": column(rows, "end") - column(rows, "start") + 1,
            "story": column(rows, "story"),
            "all": self.lengths,
        }
        """Number of tokens in every window's target, in its context, and in all of it."""
        first_N = rows["id"].is_valid().to_numpy()
        self.question_N = np.cumsum(first_N) - 1
        """Index of every window's question."""
        self.first_Q = np.flatnonzero(first_N)
        """Index of every question's first window."""
        self.may_abstain = "unknown" in self.column("kind") if may_abstain is None else may_abstain

    def windows(self) -> list[ndarray]:
        """Return the windows of every question."""
        return np.split(np.arange(len(self.lengths)), self.first_Q)[1:]

    def __getitem__(self, index: Sequence[int] | ndarray) -> QABatch:
        chosen = np.asarray(index)
        table = self.table[chosen]
        inputs, shift_B, masks = padded(
            self.tokenizer,
            column(table, "input_ids"),
            column(table, "token_type_ids"),
            self.lengths[chosen],
            context_BT=column(table, "offsets")[::2] >= 0,
            rationale_BT=column(table, "rationale"),
            max_context_BT=column(table, "max_context"),
        )
        targets = {f"{name}_B": torch.tensor(column(table, name)) for name in ("cls", *TARGETS)}
        for name in ("start_B", "end_B", "cls_B"):
            targets[name] += shift_B
        targets["feature_B"] = torch.from_numpy(chosen)
        return QABatch(inputs=inputs, shift_B=shift_B, **masks, **targets)

    def column(self, name: str) -> list[Any]:
        """Return a field of every question."""
        return self.table.data[name].take(self.first_Q).to_pylist()

    def questions(self, index: Sequence[int]) -> list[Question]:
        """Return some of the questions."""
        table = self.table[self.first_Q[index]]
        return [Question(**row) for row in table.select(Question._fields).to_pylist()]

    def token_ids(self) -> list[ndarray]:
        """Return the token ids of every window."""
        return np.split(column(self.table.data, "input_ids"), np.cumsum(self.lengths)[:-1])

    def tokens(self, index: Sequence[int] | ndarray) -> list[Tokens]:
        """Return the tokens of some windows."""
        table = self.table[index]
        rows = zip(table["offsets"].to_pylist(), table["input_ids"].to_pylist(), strict=True)
        return [list(zip(at[::2], at[1::2], ids, strict=True)) for at, ids in rows]

    def batches(self, windows_per_batch: int) -> Batches:
        """Return batches with every window once, all windows of a question in one batch:
        `windows_per_batch`, or a few more for the last question.
        """
        batches: Batches = []
        for windows in sorted(self.windows(), key=lambda windows: -self.lengths[windows].max()):
            if not batches or len(batches[-1]) >= windows_per_batch:
                batches.append([])
            batches[-1] += windows.tolist()
        return batches
