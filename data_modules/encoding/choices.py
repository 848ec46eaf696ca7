"""Multiple choice to tokens: every choice is a row of its own, paired with the prompt.

Shape letters: B batch (questions), N choices of a question, T tokens.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset
from tqdm.auto import tqdm

from data_modules.batching.samplers import sorted_batches
from data_modules.schema import ChoiceQuestion
from storage.errors import DataError

_CHUNK = 512
"""Questions per tokenizer call."""


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


class ChoiceRow(NamedTuple):
    """One (prompt, choice) pair, unpadded."""

    input_ids_T: np.ndarray
    token_type_ids_T: np.ndarray


LEAST_PIECE = 8
"""Questions of a piece of a training batch."""


class ChoiceBatch(NamedTuple):
    """Questions with the same number of choices."""

    inputs: dict[str, Tensor]
    """`input_ids`, `attention_mask`, `token_type_ids`, each (B, N, T)."""
    label_B: Tensor
    uniform_B: Tensor
    """True where training wants all choices alike."""
    example_B: Tensor
    """Index of the question in its data set."""
    perturbed: int
    """In how many questions `uniform_B` is True; no device needs to be asked."""


def encode_choices(
    examples: Sequence[ChoiceQuestion], tokenizer: Any, encoding: ChoiceEncoding, architecture: str
) -> list[tuple[ChoiceRow, ...]]:
    """The rows of every question, one a choice, in order.

    An empty prompt stays an empty first segment: `<s></s></s> choice </s>`. RoBERTa gets a space before each
    text that is not empty and does not begin with one, as in the middle of a sentence.
    """
    encoded: list[tuple[ChoiceRow, ...]] = []
    space = architecture == "roberta"
    quiet = None if len(examples) > 5000 else True
    with tqdm(total=len(examples), desc="tokenising choices", unit="q", disable=quiet) as bar:
        for at in range(0, len(examples), _CHUNK):
            chunk = examples[at : at + _CHUNK]
            pairs = [(example.prompt, choice) for example in chunk for choice in example.choices]
            if space:
                pairs = [(_spaced(prompt), _spaced(choice)) for prompt, choice in pairs]
            rows = iter(_encode_pairs(pairs, tokenizer, encoding))
            encoded += [tuple(next(rows) for _ in example.choices) for example in chunk]
            bar.update(len(chunk))
    return encoded


def _spaced(text: str) -> str:
    return f" {text}" if text and not text[0].isspace() else text


def _encode_pairs(
    pairs: Sequence[tuple[str, str]], tokenizer: Any, encoding: ChoiceEncoding
) -> list[ChoiceRow]:
    encoded = tokenizer(
        [prompt for prompt, _ in pairs],
        [choice for _, choice in pairs],
        truncation="longest_first",
        max_length=encoding.max_length,
        return_token_type_ids=True,
        return_attention_mask=False,
    )
    return [
        ChoiceRow(np.asarray(ids, dtype=np.int32), np.asarray(types, dtype=np.uint8))
        for ids, types in zip(encoded["input_ids"], encoded["token_type_ids"], strict=True)
    ]


class ChoiceSet(Dataset):
    """Questions, tokenised; indexed by the questions of a batch, which have equally many choices.

    Args:
        examples: the records.
        tokenizer: a fast tokenizer of transformers.
        encoding: how text becomes rows.
        architecture: row of the table of backbones.
        followers: for each of the first questions the indices of those that come into its batch with it:
            what training adds to an original. The questions beyond them come with others only.
    """

    def __init__(
        self,
        examples: Sequence[ChoiceQuestion],
        tokenizer: Any,
        encoding: ChoiceEncoding,
        architecture: str,
        *,
        followers: Sequence[Sequence[int]] | None = None,
    ) -> None:
        self.examples = list(examples)
        self.encoding = encoding
        self.rows = encode_choices(self.examples, tokenizer, encoding, architecture)
        self.followers = followers
        self.pad_id, self.pad_type = int(tokenizer.pad_token_id), int(tokenizer.pad_token_type_id)
        self.left = tokenizer.padding_side == "left"

    def __len__(self) -> int:
        """Questions that are asked for by index: without those that follow others."""
        return len(self.examples) if self.followers is None else len(self.followers)

    @property
    def lengths(self) -> list[int]:
        """Tokens of the longest row of every question that is asked for."""
        return [max(len(row.input_ids_T) for row in rows) for rows in self.rows[: len(self)]]

    @property
    def counts(self) -> list[int]:
        """Choices of every question that is asked for."""
        return [len(rows) for rows in self.rows[: len(self)]]

    def __getitem__(self, index: Sequence[int]) -> ChoiceBatch:
        """Exactly these questions, without followers."""
        chosen = [self.examples[i] for i in index]
        return ChoiceBatch(
            inputs=self._pad([self.rows[i] for i in index]),
            label_B=torch.tensor([example.label for example in chosen]),
            uniform_B=torch.tensor([example.target == "uniform" for example in chosen]),
            example_B=torch.tensor(list(index)),
            perturbed=sum(example.target == "uniform" for example in chosen),
        )

    def pieces(self, index: Sequence[int]) -> tuple[ChoiceBatch, ...]:
        """A training batch as batches of similar length: what probes make of a question may be several times
        as long, and all would be padded to the longest. Without followers there is one piece.

        A piece has at least half as many questions as are asked for, so that a GPU has enough to do.
        """
        added = [follower for i in index for follower in self.followers[i]] if self.followers else []
        if not added:
            return (self[index],)
        every = [*index, *added]
        every.sort(key=lambda i: max(len(row.input_ids_T) for row in self.rows[i]))
        size = max(LEAST_PIECE, len(index) // 2)
        return tuple(self[every[at : at + size]] for at in range(0, len(every), size))

    def _pad(self, rows: Sequence[tuple[ChoiceRow, ...]]) -> dict[str, Tensor]:
        B, N = len(rows), len(rows[0])
        if any(len(of_question) != N for of_question in rows):
            raise DataError("a batch holds questions with different numbers of choices")
        width = self.encoding.max_length
        if self.encoding.padding == "dynamic":
            longest = max(len(row.input_ids_T) for of_question in rows for row in of_question)
            multiple = self.encoding.pad_to_multiple_of
            width = -(-longest // multiple) * multiple
        ids = np.full((B, N, width), self.pad_id, dtype=np.int64)
        mask = np.zeros((B, N, width), dtype=np.int64)
        types = np.full((B, N, width), self.pad_type, dtype=np.int64)
        for b, of_question in enumerate(rows):
            for n, row in enumerate(of_question):
                length = len(row.input_ids_T)
                at = slice(width - length, width) if self.left else slice(0, length)
                ids[b, n, at], mask[b, n, at], types[b, n, at] = row.input_ids_T, 1, row.token_type_ids_T
        arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    def batches(self, rows_per_batch: int) -> list[list[int]]:
        """Every question once, longest first, with others of as many choices."""
        lengths, members = self.lengths, by_count(self.counts)
        return [
            [of_count[i] for i in batch]
            for count, of_count in members.items()
            for batch in sorted_batches([lengths[i] for i in of_count], max(1, rows_per_batch // count))
        ]


def by_count(counts: Sequence[int]) -> dict[int, list[int]]:
    """Indices of the questions by their numbers of choices, both in ascending order."""
    members: defaultdict[int, list[int]] = defaultdict(list)
    for i, count in enumerate(counts):
        members[count].append(i)
    return dict(sorted(members.items()))
