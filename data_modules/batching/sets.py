"""Sets of questions, and the batches of all sets: tuples of tensors, which Lightning moves to the device.

Shape letters: R rows, T tokens, B batch (questions, groups or pairs), V variants (4), S subjects (2),
C choices, E start and end, P common tokens, N tokens of several rows, or windows of a set, Q questions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import datasets
import numpy as np
import pyarrow as pa
import torch
from torch import Tensor
from torch.utils.data import Dataset

from data_modules.encoding.tables import flat, in_memory, list_lengths
from data_modules.encoding.windows import EncodedRow, Encoding
from data_modules.schema import AnswerType, QAExample
from storage.errors import DataError

PAD_TO = 8
"""Lengths of batches are multiples of this, so that there are few shapes."""

Inputs = dict[str, Tensor]
"""`input_ids`, `attention_mask`, `token_type_ids`, each (B, T); a model ignores what it does not take."""
Tokens = list[tuple[int, int, int]]
"""Start, end and id of every token of a row; start and end are -1 outside the context."""


class QABatch(NamedTuple):
    """Windows of questions."""

    inputs: Inputs
    start_B: Tensor
    end_B: Tensor
    context_BT: Tensor
    """True at context tokens: where an answer may stand."""
    cls_B: Tensor
    shift_B: Tensor
    """Columns of padding before the row: subtract to get the token index of the unpadded row."""
    feature_B: Tensor
    """Index of the window in its data set."""
    answer_type_B: Tensor
    """Target of the window, index into encoding.questions.WINDOW_TYPES."""
    number_B: Tensor
    option_B: Tensor
    """XLNet's number and option classes."""
    rationale_BT: Tensor
    """True at rationale tokens."""
    max_context_BT: Tensor
    """True where an answer may begin: context tokens that no other window shows with more context."""


class GroupBatch(NamedTuple):
    """Whole groups; row b * 4 + v of `inputs` is variant v of group b."""

    inputs: Inputs
    context_BT: Tensor
    """True at context tokens, of the same rows."""
    candidate_BVSE: Tensor
    advice_class_B: Tensor
    """Index into schema.ADVICE_CLASSES."""
    subject_BS: Tensor
    """Ids of x1 and x2 in the vocabulary of the data set."""
    attribute_B: Tensor
    group_B: Tensor
    """Index of the group in its data set."""


class PairBatch(NamedTuple):
    """Original stories beside a variant of each, in their first windows; P counts the tokens of all."""

    original: QABatch
    variant: QABatch
    original_P: Tensor
    variant_P: Tensor
    """Token index of every common token, in its row of either half."""
    row_P: Tensor
    """Which row that is."""


class ChoiceBatch(NamedTuple):
    """Multiple-choice questions with the same number of choices C."""

    inputs: Inputs
    """Each (B, C, T); of a decoder (B, 1, T)."""
    label_B: Tensor
    unknown_B: Tensor
    """True where the label says that the text does not tell, and the other choices are to be alike."""
    candidate_BCE: Tensor | None
    """Of a decoder: first and last token of each choice behind the prompt."""
    example_B: Tensor
    """Index of the question in its data set."""


class TrainBatch(NamedTuple):
    """What one optimisation step sees; each part may be absent."""

    groups: GroupBatch | None = None
    qa: QABatch | None = None


def padded(
    tokenizer: Any,
    ids_N: np.ndarray,
    types_N: np.ndarray,
    length_R: np.ndarray,
    *,
    multiple: int = PAD_TO,
    **masks_N: np.ndarray,
) -> tuple[Inputs, Tensor, dict[str, Tensor]]:
    """Rows that stand behind one another, padded as the tokenizer pads them, to a multiple in length.

    Returns:
        Inputs (R, T), columns of padding before each row (R,), and masks (R, T), False at padding.
    """
    length_R = length_R.astype(np.int64)
    width = -(-int(length_R.max()) // multiple) * multiple
    left = tokenizer.padding_side == "left"
    shift_R = width - length_R if left else np.zeros(len(length_R), dtype=np.int64)
    column_T = np.arange(width)
    inside_RT = (column_T >= shift_R[:, None]) & (column_T < (shift_R + length_R)[:, None])

    def rows_of(values_N: Any, padding: int, dtype: type) -> Tensor:
        array = np.full(inside_RT.shape, padding, dtype)
        array[inside_RT] = values_N
        return torch.from_numpy(array)

    inputs = {
        "input_ids": rows_of(ids_N, tokenizer.pad_token_id, np.int64),
        "attention_mask": rows_of(1, 0, np.int64),
        "token_type_ids": rows_of(types_N, tokenizer.pad_token_type_id, np.int64),
    }
    masks = {name: rows_of(values_N, False, bool) for name, values_N in masks_N.items()}
    return inputs, torch.from_numpy(shift_R), masks


def pad_rows(
    rows: Sequence[EncodedRow], tokenizer: Any, multiple: int = PAD_TO
) -> tuple[Inputs, Tensor, Tensor]:
    """Inputs (R, T), context (R, T), True at context tokens, and columns of padding before each row (R,)."""
    ids_N, types_N, offsets_NE = (np.concatenate([row[column] for row in rows]) for column in range(3))
    columns = ids_N, types_N, np.array([len(row.input_ids_T) for row in rows])
    inputs, shift_R, masks = padded(tokenizer, *columns, multiple=multiple, context=offsets_NE[:, 0] >= 0)
    return inputs, masks["context"], shift_R


def numbers(table: pa.Table, name: str) -> Tensor:
    """A column of numbers, or of lists of them behind one another, as int64."""
    return torch.from_numpy(flat(table, name).astype(np.int64))


def sorted_batches(lengths: Sequence[int] | np.ndarray, batch_size: int) -> list[list[int]]:
    """Every index once, longest first (memory trouble shows at once), similar lengths together."""
    order = np.argsort(-np.asarray(lengths), kind="stable")
    return [order[i : i + batch_size].tolist() for i in range(0, len(order), batch_size)]


class Question(NamedTuple):
    """What decoding and scoring need of a question."""

    id: str
    context: str
    question: str
    gold: list[str]
    kind: AnswerType
    """Of the answer."""
    dataset: str


class QASet(Dataset):
    """Extractive questions, tokenised into windows: records, or their table.

    A span model may leave a question unanswered if `may_abstain`, by default where the set holds a question
    without an answer.
    """

    family = "qa"  # in the keys of metrics

    def __init__(
        self,
        data: Sequence[QAExample] | datasets.Dataset,
        tokenizer: Any,
        encoding: Encoding,
        *,
        may_abstain: bool | None = None,
    ) -> None:
        if not isinstance(data, datasets.Dataset):
            from data_modules.encoding.questions import encode_questions

            data = in_memory(data, partial(encode_questions, tokenizer=tokenizer, encoding=encoding))
        self.table, self.tokenizer = data, tokenizer
        self.row_N = np.flatnonzero(data.data.column("window").is_valid().to_numpy())
        self.lengths = list_lengths(data.data, "input_ids")[self.row_N]
        """Tokens of every window, (N,)."""
        first_N = flat(data.data, "window")[self.row_N] == 0
        self.question_N = np.cumsum(first_N) - 1
        """Index of every window's question."""
        self.first_Q = np.flatnonzero(first_N)
        """Index of every question's first window."""
        self.may_abstain = "unknown" in self.column("kind") if may_abstain is None else may_abstain

    def __len__(self) -> int:
        """How many windows there are."""
        return len(self.row_N)

    def __getitem__(self, index: Sequence[int] | np.ndarray) -> QABatch:
        chosen = np.asarray(index, dtype=np.int64)
        table = self.table[self.row_N[chosen]]
        tokens_N = flat(table, "input_ids"), flat(table, "token_type_ids")
        masks_N: dict[str, Any] = {f"{name}_BT": flat(table, name) for name in ("rationale", "max_context")}
        masks_N["context_BT"] = flat(table, "offsets")[::2] >= 0
        inputs, shift_B, masks = padded(self.tokenizer, *tokens_N, self.lengths[chosen], **masks_N)
        places = {f"{name}_B": numbers(table, name) + shift_B for name in ("start", "end", "cls")}
        classes = {f"{name}_B": numbers(table, name) for name in ("answer_type", "number", "option")}
        where = {"shift_B": shift_B, "feature_B": torch.from_numpy(chosen)}
        return QABatch(inputs=inputs, **where, **masks, **places, **classes)

    def column(self, name: str) -> list[Any]:
        """A field of every question."""
        values: list[Any] = self.table.data.column(name).take(self.row_N[self.first_Q]).to_pylist()
        return values

    def questions(self, index: Sequence[int]) -> list[Question]:
        """Some of the questions."""
        table = self.table[self.row_N[self.first_Q[np.asarray(index)]]]
        return [Question(**row) for row in table.select(Question._fields).to_pylist()]

    def tokens(self, index: Sequence[int] | np.ndarray) -> list[Tokens]:
        """The tokens of some windows."""
        table = self.table[self.row_N[np.asarray(index)]]
        rows = zip(table["offsets"].to_pylist(), table["input_ids"].to_pylist(), strict=True)
        return [list(zip(at[::2], at[1::2], ids, strict=True)) for at, ids in rows]

    def batches(self, windows_per_batch: int) -> list[list[int]]:
        """Every window once, all windows of a question in one batch: `windows_per_batch`, or a few more for
        the last question."""
        longest_Q = np.maximum.reduceat(self.lengths, self.first_Q) if len(self) else self.first_Q
        windows_Q = np.split(np.arange(len(self)), self.first_Q[1:])
        batches: list[list[int]] = []
        for question in np.argsort(-longest_Q, kind="stable"):
            if not batches or len(batches[-1]) >= windows_per_batch:
                batches.append([])
            batches[-1] += windows_Q[question].tolist()
        return batches


class PairSet(Dataset):
    """Originals beside one variant of some of them. DataError where two originals have one id."""

    family = "shift"  # in the keys of metrics

    def __init__(self, originals: QASet, variants: QASet, variant: str = "") -> None:
        self.originals, self.variants, self.variant = originals, variants, variant
        ids = originals.column("id")
        first = dict(zip(ids, originals.first_Q, strict=True))
        if len(first) < len(ids):
            name, count = Counter(ids).most_common(1)[0]
            raise DataError(f"{count} questions have the id {name!r}: stories and variants are paired by id")
        self.original_N = np.array([first[name] for name in variants.column("id")])
        self._kept = variants.column("kept")

    def __len__(self) -> int:
        return len(self.original_N)

    def __getitem__(self, index: Sequence[int]) -> PairBatch:
        one, two = self.original_N[index], self.variants.first_Q[index]
        original, variant = self.originals[one], self.variants[two]
        tokens = zip(self.originals.tokens(one), self.variants.tokens(two), strict=True)
        common = [common_tokens(*pair, self._kept[i]) for i, pair in zip(index, tokens, strict=True)]
        row_P = torch.arange(len(common)).repeat_interleave(torch.tensor([len(found) for found in common]))
        original_P, variant_P = torch.tensor(list(chain(*common)), dtype=torch.int64).view(-1, 2).T
        shifted = original_P + original.shift_B[row_P], variant_P + variant.shift_B[row_P]
        return PairBatch(original, variant, *shifted, row_P)

    def batches(self, rows_per_batch: int) -> list[list[int]]:
        """Every pair once, similar lengths together; a pair is two rows."""
        return sorted_batches(self.originals.lengths[self.original_N], max(1, rows_per_batch // 2))


def common_tokens(
    original: Tokens, variant: Tokens, kept: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Where each token that two stories share stands in the original and in the variant: the same token of
    the same characters (faithfulness spec 4.2). The variant's context begins with pieces of the original,
    which are `kept`."""
    place = {token: t for t, token in enumerate(original) if token[0] >= 0}
    moved = ((*in_original(start, end, kept), token) for start, end, token in variant)
    return [(place[token], t) for t, token in enumerate(moved) if token in place]


def in_original(start: int, end: int, kept: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Where characters start .. end - 1 of a variant stand in the original; (-1, -1) if not in one piece."""
    before = 0
    for first, last in kept:
        length = last - first
        if before <= start and end <= before + length:
            return start - before + first, end - before + first
        before += length
    return -1, -1
