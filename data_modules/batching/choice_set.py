"""Multiple-choice questions, tokenised, as batches of questions with equally many choices.

Shape letters: Q questions, N rows (choices), B questions of a batch, C choices, E first and last token.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from data_modules.batching.sets import PAD_TO, ChoiceBatch, pad_rows, sorted_batches
from data_modules.encoding.choices import ChoiceEncoding, encode_choices
from data_modules.schema import ChoiceQuestion


class ChoiceSet(Dataset):
    """Questions, tokenised; indexed by the questions of a batch, which have equally many choices."""

    family = "choices"  # in the keys of metrics

    def __init__(
        self, questions: Sequence[ChoiceQuestion], tokenizer: Any, encoding: ChoiceEncoding, architecture: str
    ) -> None:
        self.questions, self.tokenizer = questions, tokenizer
        self.rows = list(encode_choices(questions, tokenizer, encoding, architecture))
        self.multiple = encoding.max_length if encoding.padding == "parity" else PAD_TO
        self.counts = np.array([len(question.choices) for question in questions], np.int64)
        """Choices of every question."""
        longest = [max(len(row.input_ids_T) for row in rows) for rows in self.rows]
        self.lengths = np.array(longest, np.int64)
        """Tokens of the longest row of every question."""

    def __len__(self) -> int:
        return len(self.questions)

    def __getitem__(self, index: Sequence[int]) -> ChoiceBatch:
        asked, rows = [self.questions[i] for i in index], [*chain(*(self.rows[i] for i in index))]
        inputs, _, shift_R = pad_rows(rows, self.tokenizer, self.multiple)
        candidate_BCE = None
        if rows[0].spans:
            candidate_BCE = torch.tensor([row.spans for row in rows]) + shift_R.view(-1, 1, 1)
        return ChoiceBatch(
            inputs={name: rows_RT.unflatten(0, (len(index), -1)) for name, rows_RT in inputs.items()},
            label_B=torch.tensor([question.label for question in asked]),
            unknown_B=torch.tensor([question.target == "unknown" for question in asked]),
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
