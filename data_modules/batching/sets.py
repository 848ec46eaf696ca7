"""Sets: a table of encoded records, and its batches.

    data = QASet(examples, tokenizer, encoding)      # encoded in memory
    data = QASet(table, tokenizer, encoding)         # a table that is there already
    data[[0, 4, 7]]                                  # a padded batch

(Groups: group_rows.py; multiple choice: choice_set.py.)

Shape letters: N windows or pairs; E the two boundaries (start, end), Q questions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import datasets
import numpy as np
import torch
from torch.utils.data import Dataset

from data_modules.batching.collate import Collator, PairBatch, QABatch, TrainBatch, numbers, sorted_batches
from data_modules.batching.samplers import BatchIndex
from data_modules.encoding.tables import flat, in_memory, list_lengths
from data_modules.encoding.windows import Encoding, encode_questions
from data_modules.schema import AnswerType, QAExample

if TYPE_CHECKING:
    from data_modules.batching.choice_set import ChoiceSet
    from data_modules.batching.group_rows import GroupSet

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
        self._tokens = data.select_columns(_QA_BATCH)
        self.lengths = list_lengths(columns, "input_ids")[self.row_N]
        """Tokens of every window, (N,)."""
        first_N = flat(columns, "window")[self.row_N] == 0
        self.question_N = np.cumsum(first_N) - 1
        """Index of every window's question."""
        self.first_Q = self.row_N[first_N]
        """Row of every question's first window."""
        self.may_abstain = "unknown" in self.kinds if may_abstain is None else may_abstain
        self.collator = Collator(tokenizer, encoding.pad_to_multiple_of)

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

    @cached_property
    def kinds(self) -> list[AnswerType]:
        """Of every question's answer."""
        kinds: list[AnswerType] = self.table.data.column("kind").take(self.first_Q).to_pylist()
        return kinds

    def questions(self, index: Sequence[int]) -> list[Question]:
        """Some of the questions."""
        rows = self.table.select_columns(list(Question._fields))[self.first_Q[np.asarray(index)]]
        return [Question(**row) for row in rows.to_pylist()]

    def offsets(self, index: Sequence[int]) -> list[np.ndarray]:
        """Character offsets (T, E) of the tokens of some windows."""
        rows = self.table.select_columns(["offsets"])[self.row_N[np.asarray(index)]]
        ends = np.cumsum(list_lengths(rows, "offsets"))
        return [part.reshape(-1, 2) for part in np.split(flat(rows, "offsets"), ends[:-1])]

    def first_of(self, types: Iterable[AnswerType]) -> Question | None:
        """The first question whose answer is of one of these types."""
        wanted = frozenset(types)
        return next((self.questions([q])[0] for q, kind in enumerate(self.kinds) if kind in wanted), None)

    def batches(self, windows_per_batch: int) -> list[list[int]]:
        """Every window once; all windows of a question stay in one batch, so that no question is split
        over ranks. Batches hold `windows_per_batch` windows, or a few more for the last question."""
        starts = np.flatnonzero(np.diff(self.question_N, prepend=-1))
        longest_Q = np.maximum.reduceat(self.lengths, starts) if len(starts) else starts
        ends = np.append(starts[1:], len(self))
        batches: list[list[int]] = [[]]
        for question in np.argsort(-longest_Q, kind="stable"):
            if len(batches[-1]) >= windows_per_batch:
                batches.append([])
            batches[-1] += range(starts[question], ends[question])
        return [batch for batch in batches if batch]


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
        self.collator = Collator(tokenizer, encoding.pad_to_multiple_of)

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


@dataclass
class TrainSet(Dataset):
    """Groups and questions to train on together, or multiple-choice questions; indexed by what the training
    samplers yield."""

    groups: GroupSet | None = None
    qa: QASet | None = None
    choices: ChoiceSet | None = None

    def __getitem__(self, index: BatchIndex) -> TrainBatch:
        groups, qa, choices = self.groups, self.qa, self.choices
        return TrainBatch(
            groups=groups[index.groups] if groups is not None and index.groups else None,
            qa=qa[index.qa] if qa is not None and index.qa else None,
            choices=choices.pieces(index.choices) if choices is not None and index.choices else None,
        )
