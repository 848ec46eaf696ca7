"""Multiple-choice questions, tokenised, in batches with equal numbers of choices.

For encoders, each choice is a row, paired with the prompt; for decoders, one row has the prompt and
all choices after it.

Shape letters: Q questions, N rows (choices), B questions of a batch, C choices, E first and last
token.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from interventune.data_modules.encoding.prompts import CHOOSE, Prompt, encode_prompts
from interventune.data_modules.encoding.tokenizers import warn_of_unknown
from interventune.data_modules.encoding.windows import (
    DECODERS,
    PAD_TO,
    Batches,
    EncodedRow,
    Encoding,
    Inputs,
    Prompts,
    pad_rows,
    sorted_batches,
)
from interventune.data_modules.schema.questions import ChoiceQuestion


@dataclass(kw_only=True)
class ChoiceEncoding:
    """How a prompt and one of its choices become a row of tokens.

    Args:
        max_length: Tokens in a row, with special tokens. If a pair is longer, the end of its longer
            text is cut. A decoder's row holds all choices and is never cut.
        padding: `dynamic` pads a batch to its longest row; `parity` pads every row to `max_length`,
            as in the code of Shen and Kejriwal 2022.
        chat: Whether a decoder's prompt uses the tokenizer's chat template: `auto`, if there is
            one, or `never`.
    """

    max_length: int = 128
    padding: Literal["dynamic", "parity"] = "dynamic"
    chat: Literal["auto", "never"] = "auto"

    def within(self, limit: int | None) -> ChoiceEncoding:
        """Return the options for a model with so many positions."""
        return self if limit is None else replace(self, max_length=min(self.max_length, limit))

    def of_decoder(self, architecture: str) -> Encoding:
        """Return the text encoding stored in checkpoints of decoders, with these settings."""
        return Encoding(max_length=self.max_length, prompts=Prompts(chat=self.chat)).resolved(
            architecture
        )


class ChoiceBatch(NamedTuple):
    """Multiple-choice questions with the same number of choices C."""

    inputs: Inputs
    """Each (B, C, T); for a decoder (B, 1, T)."""
    label_B: Tensor
    unknown_B: Tensor
    """True where the label is "unknown" and training should equalise the other choices."""
    candidate_BCE: Tensor | None
    """For a decoder: first and last token of each choice after the prompt."""
    example_B: Tensor
    """Index of the question in its data set."""


class ChoiceSet(Dataset):
    """Tokenised questions, indexed by the questions of a batch (equal numbers of choices)."""

    family = "choices"  # in the keys of metrics

    def __init__(
        self,
        questions: Sequence[ChoiceQuestion],
        tokenizer: Any,
        encoding: ChoiceEncoding,
        architecture: str,
    ) -> None:
        self.questions, self.tokenizer = questions, tokenizer
        self.rows = list(encode_choices(questions, tokenizer, encoding, architecture))
        warn_of_unknown(tokenizer, (row.input_ids_T for row in chain(*self.rows[:999])))
        self.multiple = encoding.max_length if encoding.padding == "parity" else PAD_TO
        self.counts = np.array([len(question.choices) for question in questions], np.int64)
        """Number of choices of every question."""
        self.lengths = np.array(
            [max(len(row.input_ids_T) for row in rows) for rows in self.rows], np.int64
        )
        """Length of the longest row of every question, in tokens."""

    def __len__(self) -> int:
        return len(self.questions)

    def __getitem__(self, index: Sequence[int]) -> ChoiceBatch:
        questions = [self.questions[i] for i in index]
        rows = [*chain(*(self.rows[i] for i in index))]
        inputs, _, shift_R = pad_rows(rows, self.tokenizer, self.multiple)
        candidate_BCE = None
        if rows[0].spans:
            candidate_BCE = torch.tensor([row.spans for row in rows]) + shift_R.view(-1, 1, 1)
        return ChoiceBatch(
            inputs={
                name: rows_RT.unflatten(0, (len(index), -1)) for name, rows_RT in inputs.items()
            },
            label_B=torch.tensor([question.label for question in questions]),
            unknown_B=torch.tensor([question.target == "unknown" for question in questions]),
            candidate_BCE=candidate_BCE,
            example_B=torch.tensor(index),
        )

    def items_of(self, index: Sequence[int]) -> Counter[str]:
        """Return the number of questions of a batch."""
        return Counter(questions=len(index))

    def batches(self, rows_per_batch: int) -> Batches:
        """Batch every question once, longest first, with equal numbers of choices."""
        return [
            of_count[batch].tolist()
            for count, of_count in by_count(self.counts).items()
            for batch in sorted_batches(self.lengths[of_count], max(1, rows_per_batch // count))
        ]


def by_count(counts: np.ndarray) -> dict[int, np.ndarray]:
    """Group question indices by number of choices, both in ascending order."""
    return {int(count): np.flatnonzero(counts == count) for count in np.unique(counts)}


def encode_choices(
    questions: Sequence[ChoiceQuestion], tokenizer: Any, encoding: ChoiceEncoding, architecture: str
) -> Iterator[list[EncodedRow]]:
    """Yield the rows of every question: one per choice; for a decoder, a single one.

    A decoder's row has the `spans` of all choices. An empty prompt remains an empty first segment:
    `<s></s></s> choice </s>`. For RoBERTa, each non-empty text without a leading space gets one, as
    in the middle of a sentence. DataError if a decoder's row is too long.
    """
    if architecture in DECODERS:
        prompts = []
        for question in questions:
            text = CHOOSE.format(prompt=question.prompt.strip()).strip()
            messages = [{"role": "user", "content": text}]
            choices = [choice.strip() for choice in question.choices]
            prompts.append(Prompt(messages, text, 0, choices, f"question {question.id}"))
        rows = encode_prompts(prompts, tokenizer, encoding.of_decoder(architecture))
        yield from ([row] for row in rows)
        return

    def spaced(text: str) -> str:
        return re.sub(r"^(?=\S)", " ", text) if architecture == "roberta" else text

    for example, question in enumerate(questions):
        pairs = [(spaced(question.prompt), spaced(choice)) for choice in question.choices]
        yield [
            EncodedRow(
                np.array(row.ids, np.int32),
                np.array(row.type_ids, np.uint8),
                np.full((len(row.ids), 2), -1),
                cls=0,
                example=example,
            )
            for row in tokenizer(
                pairs, truncation="longest_first", max_length=encoding.max_length
            ).encodings
        ]
