"""Sets: a table of encoded records, and its batches.

    data = QASet(examples, tokenizer, encoding)      # encoded in memory
    data = QASet(table, tokenizer, encoding)         # a table that is there already
    data[[0, 4, 7]]                                  # a padded batch

A batch is a NamedTuple of tensors, which Lightning moves to the device and pins field by field.

Shape letters: R rows, T tokens, B batch (questions, groups or pairs), V variants (4), S subjects (2),
C choices, E the two boundaries (start, end), P common tokens, N the tokens of several rows together, or the
windows or pairs of a set, Q questions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import datasets
import numpy as np
import pyarrow as pa
import torch
from torch import Tensor
from torch.utils.data import Dataset

from data_modules.encoding.questions import encode_questions
from data_modules.encoding.tables import flat, in_memory, list_lengths
from data_modules.encoding.windows import EncodedRow, Encoding
from data_modules.schema import AnswerType, QAExample

PAD_TO = 8
"""Lengths of batches are multiples of this."""


class QABatch(NamedTuple):
    """Windows of questions."""

    inputs: dict[str, Tensor]
    """`input_ids`, `attention_mask`, `token_type_ids`, each (B, T); a model ignores what it does not take."""
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

    inputs: dict[str, Tensor]
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
    """Original stories beside a variant of each, see encoding/pairs.py; P counts the tokens of all."""

    original: dict[str, Tensor]
    variant: dict[str, Tensor]
    """Inputs of the two halves, as in QABatch, each (B, T) with its own T."""
    original_cls_B: Tensor
    variant_cls_B: Tensor
    original_P: Tensor
    variant_P: Tensor
    """Token index of every common token, in its row of either half."""
    row_P: Tensor
    """Which row that is."""
    pair_B: Tensor
    """Index of the pair in its data set."""


class ChoiceBatch(NamedTuple):
    """Multiple-choice questions with the same number of choices C."""

    inputs: dict[str, Tensor]
    """`input_ids`, `attention_mask`, `token_type_ids`, each (B, C, T); of a decoder (B, 1, T)."""
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
    choices: ChoiceBatch | None = None


class Padded(NamedTuple):
    """Rows of tokens, padded."""

    inputs: dict[str, Tensor]
    """As in QABatch, each (R, T)."""
    shift_R: Tensor
    """Columns of padding before each row."""
    masks: dict[str, Tensor]
    """Booleans of the tokens, each (R, T), False at padding."""


@dataclass(frozen=True)
class Collator:
    """Pads rows as the tokenizer pads them.

    Args:
        tokenizer: tells the padding side and ids.
        multiple: batch lengths are multiples of this (few distinct shapes).
    """

    tokenizer: Any
    multiple: int = PAD_TO

    def padded(
        self,
        ids_N: np.ndarray,
        types_N: np.ndarray,
        length_R: np.ndarray,
        *,
        width: int = 0,
        **masks_N: np.ndarray,
    ) -> Padded:
        """Rows that stand behind one another as (R, T); T is `width`, or follows from the longest."""
        length_R = length_R.astype(np.int64)
        width = width or -(-int(length_R.max()) // self.multiple) * self.multiple
        left = self.tokenizer.padding_side == "left"
        shift_R = width - length_R if left else np.zeros(len(length_R), dtype=np.int64)
        column_T = np.arange(width)
        inside_RT = (column_T >= shift_R[:, None]) & (column_T < (shift_R + length_R)[:, None])

        def rows_of(values_N: Any, padding: int, dtype: type) -> Tensor:
            array = np.full(inside_RT.shape, padding, dtype)
            array[inside_RT] = values_N
            return torch.from_numpy(array)

        inputs = {
            "input_ids": rows_of(ids_N, self.tokenizer.pad_token_id, np.int64),
            "attention_mask": rows_of(1, 0, np.int64),
            "token_type_ids": rows_of(types_N, self.tokenizer.pad_token_type_id, np.int64),
        }
        masks = {name: rows_of(values_N, False, bool) for name, values_N in masks_N.items()}
        return Padded(inputs, torch.from_numpy(shift_R), masks)

    def pad(self, rows: Sequence[EncodedRow]) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """Returns the model inputs (R, T), the context mask (R, T) and the left shift (R,)."""
        padded = self.padded(
            np.concatenate([row.input_ids_T for row in rows]),
            np.concatenate([row.token_type_ids_T for row in rows]),
            np.array([len(row.input_ids_T) for row in rows]),
            context=np.concatenate([row.offsets_TE[:, 0] for row in rows]) >= 0,
        )
        return padded.inputs, padded.masks["context"], padded.shift_R


def numbers(table: pa.Table, name: str) -> Tensor:
    """A column of numbers, or of lists of them behind one another, as int64."""
    return torch.from_numpy(flat(table, name).astype(np.int64))


def sorted_batches(lengths: Sequence[int] | np.ndarray, batch_size: int) -> list[list[int]]:
    """Every index once, longest first (memory trouble shows at once), similar lengths together."""
    order = np.argsort(-np.asarray(lengths), kind="stable")
    return [order[i : i + batch_size].tolist() for i in range(0, len(order), batch_size)]


_QA_BATCH = [
    *("input_ids", "token_type_ids", "offsets", "cls", "start", "end"),
    *("answer_type", "number", "option", "rationale", "max_context"),
]
"""Columns of a batch of questions."""


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
    """Extractive questions, tokenised into windows.

    Args:
        data: the records, or their table.
        tokenizer: a fast tokenizer of transformers.
        encoding: how text becomes rows.
        may_abstain: whether a span model may leave a question unanswered; None: where the set holds a
            question without an answer. All variants of one source must agree, or their numbers do not
            compare.
    """

    family = "qa"
    """What metrics of such sets are called."""

    def __init__(
        self,
        data: Sequence[QAExample] | datasets.Dataset,
        tokenizer: Any,
        encoding: Encoding,
        *,
        may_abstain: bool | None = None,
    ) -> None:
        if not isinstance(data, datasets.Dataset):
            data = in_memory(data, partial(encode_questions, tokenizer=tokenizer, encoding=encoding))
        self.table, columns = data, data.data
        self.row_N = np.flatnonzero(columns.column("window").is_valid().to_numpy())
        # Columns are selected once: that takes longer than to read some rows.
        self._tokens, self._offsets = data.select_columns(_QA_BATCH), data.select_columns(["offsets"])
        self._questions = data.select_columns(list(Question._fields))
        self.lengths = list_lengths(columns, "input_ids")[self.row_N]
        """Tokens of every window, (N,)."""
        first_N = flat(columns, "window")[self.row_N] == 0
        self.question_N = np.cumsum(first_N) - 1
        """Index of every window's question."""
        self.first_Q = self.row_N[first_N]
        """Row of every question's first window."""
        self.may_abstain = "unknown" in self._of_questions("kind") if may_abstain is None else may_abstain
        self.collator = Collator(tokenizer)

    def __len__(self) -> int:
        """How many windows there are."""
        return len(self.row_N)

    def __getitem__(self, index: Sequence[int]) -> QABatch:
        chosen = np.asarray(index, dtype=np.int64)
        table = self._tokens[self.row_N[chosen]]
        padded = self.collator.padded(
            flat(table, "input_ids"),
            flat(table, "token_type_ids"),
            self.lengths[chosen],
            context=flat(table, "offsets")[::2] >= 0,
            rationale=flat(table, "rationale"),
            max_context=flat(table, "max_context"),
        )
        return QABatch(
            inputs=padded.inputs,
            start_B=numbers(table, "start") + padded.shift_R,
            end_B=numbers(table, "end") + padded.shift_R,
            context_BT=padded.masks["context"],
            cls_B=numbers(table, "cls") + padded.shift_R,
            shift_B=padded.shift_R,
            feature_B=torch.from_numpy(chosen),
            answer_type_B=numbers(table, "answer_type"),
            number_B=numbers(table, "number"),
            option_B=numbers(table, "option"),
            rationale_BT=padded.masks["rationale"],
            max_context_BT=padded.masks["max_context"],
        )

    def _of_questions(self, name: str) -> list[Any]:
        values: list[Any] = self.table.data.column(name).take(self.first_Q).to_pylist()
        return values

    @property
    def ids(self) -> list[str]:
        """Of every question."""
        return self._of_questions("id")

    @property
    def references(self) -> Iterator[tuple[str, int]]:
        """The data set of every question, and how many human answers it has."""
        counts = list_lengths(self.table.data, "gold")[self.first_Q].tolist()
        return zip(self._of_questions("dataset"), counts, strict=True)

    def questions(self, index: Sequence[int]) -> list[Question]:
        """Some of the questions."""
        rows = self._questions[self.first_Q[np.asarray(index)]]
        return [Question(**row) for row in rows.to_pylist()]

    def offsets(self, index: Sequence[int]) -> list[np.ndarray]:
        """Character offsets (T, E) of the tokens of some windows."""
        rows = self._offsets[self.row_N[np.asarray(index)]]
        ends = np.cumsum(list_lengths(rows, "offsets"))
        return [part.reshape(-1, 2) for part in np.split(flat(rows, "offsets"), ends[:-1])]

    def first_of(self, types: Iterable[AnswerType]) -> Question | None:
        """The first question whose answer is of one of these types."""
        wanted, kinds = frozenset(types), self._of_questions("kind")
        return next((self.questions([q])[0] for q, kind in enumerate(kinds) if kind in wanted), None)

    def batches(self, windows_per_batch: int) -> list[list[int]]:
        """Every window once; all windows of a question stay in one batch, so that no question is split
        over ranks. Batches hold `windows_per_batch` windows, or a few more for the last question."""
        starts = np.flatnonzero(np.diff(self.question_N, prepend=-1))
        longest_Q = np.maximum.reduceat(self.lengths, starts) if len(starts) else starts
        windows_Q = np.split(np.arange(len(self)), starts[1:])
        batches: list[list[int]] = []
        for question in np.argsort(-longest_Q, kind="stable"):
            if not batches or len(batches[-1]) >= windows_per_batch:
                batches.append([])
            batches[-1] += windows_Q[question].tolist()
        return batches


class PairSet(Dataset):
    """Originals beside one variant of each.

    Args:
        table: of pairs.
        tokenizer: a fast tokenizer of transformers.
        encoding: how text became rows.
        variant: which is compared with the originals.
    """

    family = "shift"
    """What metrics of such sets are called."""

    def __init__(self, table: datasets.Dataset, tokenizer: Any, encoding: Encoding, variant: str) -> None:
        self.table, self.variant = table, variant
        self.row_N = np.flatnonzero(table.data.column("windows").is_valid().to_numpy())
        self.collator = Collator(tokenizer)

    def __len__(self) -> int:
        return len(self.row_N)

    def __getitem__(self, index: Sequence[int]) -> PairBatch:
        chosen = np.asarray(index, dtype=np.int64)
        table = self.table[self.row_N[chosen]]
        original, variant = (
            self.collator.padded(
                flat(table, f"{half}_input_ids"),
                flat(table, f"{half}_token_type_ids"),
                list_lengths(table, f"{half}_input_ids"),
            )
            for half in ("original", "variant")
        )
        counts = torch.from_numpy(list_lengths(table, "original_common"))
        row_P = torch.arange(len(chosen)).repeat_interleave(counts)
        return PairBatch(
            original=original.inputs,
            variant=variant.inputs,
            original_cls_B=numbers(table, "original_cls") + original.shift_R,
            variant_cls_B=numbers(table, "variant_cls") + variant.shift_R,
            original_P=numbers(table, "original_common") + original.shift_R[row_P],
            variant_P=numbers(table, "variant_common") + variant.shift_R[row_P],
            row_P=row_P,
            pair_B=torch.from_numpy(chosen),
        )

    def batches(self, rows_per_batch: int) -> list[list[int]]:
        """Every pair once, similar lengths together; a pair is two rows."""
        lengths = list_lengths(self.table.data, "original_input_ids")[self.row_N]
        return sorted_batches(lengths, max(1, rows_per_batch // 2))
