"""Multiple-choice questions, tokenised, as batches of questions with equally many choices.

Shape letters: Q questions, N rows (choices), B questions of a batch, C choices, E first and last token.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from data_modules.batching.sets import ChoiceBatch, numbers, padded, sorted_batches
from data_modules.encoding.choices import ChoiceEncoding, encode_choices
from data_modules.encoding.tables import flat, in_memory, list_lengths
from data_modules.schema import ChoiceQuestion


class ChoiceSet(Dataset):
    """Questions, tokenised; indexed by the questions of a batch, which have equally many choices."""

    family = "choices"  # in the keys of metrics

    def __init__(
        self, questions: Sequence[ChoiceQuestion], tokenizer: Any, encoding: ChoiceEncoding, architecture: str
    ) -> None:
        options = {"tokenizer": tokenizer, "encoding": encoding, "architecture": architecture}
        self.table = in_memory(questions, partial(encode_choices, **options))
        self.tokenizer = tokenizer
        self.width = encoding.max_length if encoding.padding == "parity" else 0
        self.behind_prompts = "candidate" in self.table.column_names
        """Whether all choices of a question stand in one row, as a decoder reads them."""
        rows_Q = list_lengths(self.table.data, "length")
        self.counts = list_lengths(self.table.data, "candidate") // 2 if self.behind_prompts else rows_Q
        """Choices of every question."""
        starts, length_N = np.cumsum(rows_Q) - rows_Q, flat(self.table.data, "length").astype(np.int64)
        self.lengths = np.maximum.reduceat(length_N, starts) if len(starts) else starts
        """Tokens of the longest row of every question."""

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, index: Sequence[int]) -> ChoiceBatch:
        table, B = self.table[list(index)], len(index)
        columns_N = (flat(table, name) for name in ("input_ids", "token_type_ids", "length"))
        inputs, shift_R, _ = padded(self.tokenizer, *columns_N, width=self.width)
        candidate_BCE = None
        if self.behind_prompts:
            candidate_BCE = numbers(table, "candidate").view(B, -1, 2) + shift_R.view(B, 1, 1)
        return ChoiceBatch(
            inputs={name: rows.view(B, -1, rows.shape[-1]) for name, rows in inputs.items()},
            label_B=numbers(table, "label"),
            unknown_B=torch.tensor(table.column("unknown").to_pylist()),
            candidate_BCE=candidate_BCE,
            example_B=torch.tensor(index),
        )

    def batches(self, rows_per_batch: int) -> list[list[int]]:
        """Every question once, longest first, with others of as many choices."""
        return [
            [of_count[i] for i in batch]
            for count, of_count in by_count(self.counts).items()
            for batch in sorted_batches(self.lengths[of_count], max(1, rows_per_batch // count))
        ]


def by_count(counts: Iterable[int]) -> dict[int, list[int]]:
    """Indices of the questions by their numbers of choices, both in ascending order."""
    every = np.asarray(counts)
    return {int(count): np.flatnonzero(every == count).tolist() for count in np.unique(every)}
