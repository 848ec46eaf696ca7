"""Multiple-choice questions, tokenised, as batches of questions with equally many choices.

Shape letters: Q questions, N rows (choices), B questions of a batch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from data_modules.batching.sets import ChoiceBatch, Collator, numbers, sorted_batches
from data_modules.encoding.choices import ChoiceEncoding, encode_choices
from data_modules.encoding.tables import flat, in_memory, list_lengths
from data_modules.schema import ChoiceQuestion
from storage.errors import DataError

LEAST_PIECE = 8
"""Questions of a piece of a training batch."""


class ChoiceSet(Dataset):
    """Questions, tokenised; indexed by the questions of a batch, which have equally many choices.

    Args:
        questions: the records.
        tokenizer: a fast tokenizer of transformers.
        encoding: how text becomes rows.
        architecture: row of the table of backbones.
        followers: for each of the first questions the indices of those that come into its batch with it:
            what training adds to an original. The questions beyond them come with others only.
    """

    family = "choices"
    """What metrics of such sets are called."""

    def __init__(
        self,
        questions: Sequence[ChoiceQuestion],
        tokenizer: Any,
        encoding: ChoiceEncoding,
        architecture: str,
        *,
        followers: Sequence[Sequence[int]] | None = None,
    ) -> None:
        options = {"tokenizer": tokenizer, "encoding": encoding, "architecture": architecture}
        self.table = in_memory(questions, partial(encode_choices, **options))
        self._batch = self.table.remove_columns(["id"])
        self.followers = followers
        columns = self.table.data
        rows_Q = list_lengths(columns, "length")
        starts = np.cumsum(rows_Q) - rows_Q
        self.behind_prompts = "candidate" in self.table.column_names
        """Whether all choices of a question stand in one row, as a decoder reads them."""
        self.counts_Q = list_lengths(columns, "candidate") // 2 if self.behind_prompts else rows_Q
        """Choices of every question."""
        length_N = flat(columns, "length").astype(np.int64)
        self.lengths_Q = np.maximum.reduceat(length_N, starts) if len(starts) else starts
        """Tokens of the longest row of every question."""
        self.width = encoding.max_length if encoding.padding == "parity" else 0
        self.collator = Collator(tokenizer, encoding.pad_to_multiple_of)

    def __len__(self) -> int:
        """Questions that are asked for by index: without those that follow others."""
        return len(self.table) if self.followers is None else len(self.followers)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of the longest row of every question that is asked for."""
        return self.lengths_Q[: len(self)]

    @property
    def counts(self) -> np.ndarray:
        """Choices of every question that is asked for."""
        return self.counts_Q[: len(self)]

    def answers(self) -> list[tuple[str, int]]:
        """Id and label of every question."""
        columns = (self.table.data.column(name).to_pylist() for name in ("id", "label"))
        return list(zip(*columns, strict=True))

    def __getitem__(self, index: Sequence[int]) -> ChoiceBatch:
        """Exactly these questions, without followers."""
        chosen = np.asarray(index, dtype=np.int64)
        count = int(self.counts_Q[chosen[0]])
        if (self.counts_Q[chosen] != count).any():
            raise DataError("a batch holds questions with different numbers of choices")
        table = self._batch[chosen]
        length_R = flat(table, "length").astype(np.int64)
        padded = self.collator.padded(
            flat(table, "input_ids"), flat(table, "token_type_ids"), length_R, width=self.width
        )
        uniform_B, unknown_B = (
            torch.tensor(table.column(name).to_pylist()) for name in ("uniform", "unknown")
        )
        candidate_BCE = None
        if self.behind_prompts:
            candidate_BCE = numbers(table, "candidate").view(len(chosen), count, 2)
            candidate_BCE = candidate_BCE + padded.shift_R.view(-1, 1, 1)
        return ChoiceBatch(
            inputs={name: rows.view(len(chosen), -1, rows.shape[-1]) for name, rows in padded.inputs.items()},
            label_B=numbers(table, "label"),
            uniform_B=uniform_B,
            unknown_B=unknown_B,
            candidate_BCE=candidate_BCE,
            example_B=torch.from_numpy(chosen),
            perturbed=int(uniform_B.sum()),
        )

    def pieces(self, index: Sequence[int]) -> tuple[ChoiceBatch, ...]:
        """A training batch as batches of similar length: what probes make of a question may be several times
        as long, and all would be padded to the longest. Without followers there is one piece.

        A piece has at least half as many questions as are asked for, so that a GPU has enough to do.
        """
        added = [follower for i in index for follower in self.followers[i]] if self.followers else []
        if not added:
            return (self[index],)
        every = sorted([*index, *added], key=lambda i: int(self.lengths_Q[i]))
        size = max(LEAST_PIECE, len(index) // 2)
        return tuple(self[every[at : at + size]] for at in range(0, len(every), size))

    def batches(self, rows_per_batch: int) -> list[list[int]]:
        """Every question once, longest first, with others of as many choices."""
        lengths, members = self.lengths, by_count(self.counts)
        return [
            [of_count[i] for i in batch]
            for count, of_count in members.items()
            for batch in sorted_batches(lengths[of_count], max(1, rows_per_batch // count))
        ]


def by_count(counts: Iterable[int]) -> dict[int, list[int]]:
    """Indices of the questions by their numbers of choices, both in ascending order."""
    members: defaultdict[int, list[int]] = defaultdict(list)
    for i, count in enumerate(counts):
        members[count].append(i)
    return dict(sorted(members.items()))
