"""Multiple choice to tokens: every choice is a row of its own, paired with the prompt.

Shape letters: Q questions, B questions of a batch, R all their rows, N all rows of a set, T tokens.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch
from torch.utils.data import Dataset

from data_modules.batching.collate import ChoiceBatch, Collator, numbers
from data_modules.batching.samplers import sorted_batches
from data_modules.encoding.tables import flat, in_memory, list_column, list_lengths
from data_modules.schema import ChoiceQuestion
from storage.errors import DataError


@dataclass(kw_only=True)
class ChoiceEncoding:
    """How a prompt and one of its choices become a row of tokens (probes spec B1).

    Args:
        max_length: Tokens in a row, special tokens included; of a longer pair the longer text is cut at its
            end, token by token.
        padding: `dynamic` pads the rows of a batch to their longest, `parity` every row to `max_length`, as
            the authors' code does.
        pad_to_multiple_of: With `dynamic`: lengths of batches are multiples of this.
    """

    max_length: int = 128
    padding: Literal["dynamic", "parity"] = "dynamic"
    pad_to_multiple_of: int = 8

    def __post_init__(self) -> None:
        if self.max_length < 8:
            raise DataError(f"choices.encoding.max_length must be at least 8, got {self.max_length}")
        if self.padding not in ("dynamic", "parity"):
            raise DataError(f"choices.encoding.padding must be dynamic or parity, got {self.padding!r}")
        if self.pad_to_multiple_of < 1:
            raise DataError(
                f"choices.encoding.pad_to_multiple_of must be at least 1, got {self.pad_to_multiple_of}"
            )


LEAST_PIECE = 8
"""Questions of a piece of a training batch."""


def encode_choices(
    questions: Sequence[ChoiceQuestion], tokenizer: Any, encoding: ChoiceEncoding, architecture: str
) -> pa.Table:
    """A row for every question: `input_ids` and `token_type_ids` of its choices behind one another, `length`
    of each; `id`, `label`, and `uniform` where training wants all choices alike.

    An empty prompt stays an empty first segment: `<s></s></s> choice </s>`. RoBERTa gets a space before each
    text that is not empty and does not begin with one, as in the middle of a sentence.
    """
    pairs = [(question.prompt, choice) for question in questions for choice in question.choices]
    if architecture == "roberta":
        pairs = [(_spaced(prompt), _spaced(choice)) for prompt, choice in pairs]
    rows: dict[str, list[list[int]]] = {"input_ids": [], "token_type_ids": []}
    if pairs:
        rows = tokenizer(
            [prompt for prompt, _ in pairs],
            [choice for _, choice in pairs],
            truncation="longest_first",
            max_length=encoding.max_length,
            return_token_type_ids=True,
            return_attention_mask=False,
        )
    lengths = [len(ids) for ids in rows["input_ids"]]
    ends = np.cumsum([0, *(len(question.choices) for question in questions)]).tolist()

    def together(name: str, dtype: Any) -> pa.Array:
        return list_column([list(chain(*rows[name][at:end])) for at, end in pairwise(ends)], dtype)

    return pa.table(
        {
            "input_ids": together("input_ids", np.int32),
            "token_type_ids": together("token_type_ids", np.uint8),
            "length": list_column([lengths[at:end] for at, end in pairwise(ends)], np.int32),
            "id": pa.array([question.id for question in questions], pa.string()),
            "label": pa.array([question.label for question in questions], pa.int64()),
            "uniform": pa.array([question.target == "uniform" for question in questions], pa.bool_()),
        }
    )


def _spaced(text: str) -> str:
    return f" {text}" if text and not text[0].isspace() else text


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
        self.counts_Q = list_lengths(columns, "length")
        """Choices of every question."""
        starts = np.cumsum(self.counts_Q) - self.counts_Q
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
            flat(table, "input_ids"), flat(table, "token_type_ids"), length_R, self.width
        )
        uniform_B = torch.tensor(table.column("uniform").to_pylist())
        return ChoiceBatch(
            inputs={name: rows.view(len(chosen), count, -1) for name, rows in padded.inputs.items()},
            label_B=numbers(table, "label"),
            uniform_B=uniform_B,
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
