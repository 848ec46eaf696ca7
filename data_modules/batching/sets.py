"""Sets of questions, and of pairs of stories.

Shape letters: B batch, T tokens, P common tokens, N windows of a set, Q questions.
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

from data_modules.batching.batches import PairBatch, QABatch, padded, sorted_batches
from data_modules.encoding.tables import flat, in_memory, list_lengths
from data_modules.encoding.windows import Encoding
from data_modules.schema import AnswerType, QAExample
from storage.errors import DataError

Tokens = list[tuple[int, int, int]]
"""Start, end and id of every token of a row; start and end are -1 outside the context."""


def numbers(table: pa.Table, name: str) -> Tensor:
    """A column of numbers, or of lists of them behind one another, as int64."""
    return torch.from_numpy(flat(table, name).astype(np.int64))


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
