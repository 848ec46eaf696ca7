"""Stories as padded batches: the original once, beside the variants that it allows.

Shape letters: B stories of a batch, R those of them that allow a variant, T tokens, P common tokens of all R,
C context tokens of all B.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from data_modules.batching.collate import Collator, sorted_batches
from data_modules.encoding.pairs import PairFeature, check_pair, first_windows, pair_feature
from data_modules.encoding.windows import EncodedRow, Encoding
from data_modules.schema import QAExample, Variant
from evaluation.processes import Processes
from evaluation.variants import Story

CKA_TOKENS = 32
"""Of one story at most so many context tokens enter CKA, evenly spread: its cost grows with the square of the
width for each of them."""


class VariantHalf(NamedTuple):
    """The variants of one kind beside their originals."""

    inputs: dict[str, Tensor]
    """As in QABatch, each (R, T)."""
    cls_R: Tensor
    row_R: Tensor
    """Which stories of the batch they belong to."""
    original_P: Tensor
    variant_P: Tensor
    """Token index of every common token, in the row of the original and of the variant."""
    half_P: Tensor
    """Which of the R it belongs to."""


class StoryBatch(NamedTuple):
    """First windows of originals, and of their variants."""

    stories: list[Story]
    windows: list[int]
    """Of each original; with more than one, only a part of the story is compared."""
    inputs: dict[str, Tensor]
    cls_B: Tensor
    row_C: Tensor
    at_C: Tensor
    """Row and token index of every context token of the originals."""
    sample_S: Tensor
    """Which of the C enter CKA."""
    halves: dict[Variant, VariantHalf]


class StoryBatcher:
    """Stories to batches, in a model's own tokens.

    Args:
        tokenizer: a fast tokenizer of transformers.
        encoding: how text becomes rows.
        batch_size: stories in a batch.
        include_question: question tokens count as common tokens, too.
    """

    def __init__(
        self, tokenizer: Any, encoding: Encoding, *, batch_size: int, include_question: bool = False
    ) -> None:
        self.tokenizer, self.encoding, self.batch_size = tokenizer, encoding, batch_size
        self.special = frozenset(tokenizer.all_special_ids) if include_question else None
        self.collator = Collator(tokenizer, encoding.pad_to_multiple_of)
        self.count = 0
        """Batches so far, those of all processes."""

    def batches(self, stories: Sequence[Story], team: Processes) -> Iterator[StoryBatch]:
        """This process's share of a chunk, longest first; batches do not depend on the number of processes.

        Raises:
            DataError: a variant that was not made from its original.
        """
        rows = self.encode([story.original for story in stories])
        for index in sorted_batches([len(row.input_ids_T) for row, _ in rows], self.batch_size):
            if self.count % team.size == team.rank:
                yield self.batch([stories[i] for i in index], [rows[i] for i in index])
            self.count += 1

    def encode(self, examples: Sequence[QAExample]) -> list[tuple[EncodedRow, int]]:
        """First windows, and how many there are."""
        return first_windows(examples, self.tokenizer, self.encoding)

    def batch(self, stories: list[Story], rows: list[tuple[EncodedRow, int]]) -> StoryBatch:
        """Stories and their encoded originals as one batch."""
        originals = [row for row, _ in rows]
        inputs, context_BT, shift_B = self.collator.pad(originals)
        row_C, at_C = context_BT.nonzero().unbind(1)
        variants = dict.fromkeys(variant for story in stories for variant in story.variants)
        return StoryBatch(
            stories=stories,
            windows=[windows for _, windows in rows],
            inputs=inputs,
            cls_B=torch.tensor([row.cls for row in originals]) + shift_B,
            row_C=row_C,
            at_C=at_C,
            sample_S=spread(context_BT.sum(1).tolist(), CKA_TOKENS),
            halves={variant: self.half(stories, originals, shift_B, variant) for variant in variants},
        )

    def half(
        self, stories: Sequence[Story], originals: Sequence[EncodedRow], shift_B: Tensor, variant: Variant
    ) -> VariantHalf:
        """One variant of those stories that allow it."""
        chosen = [b for b, story in enumerate(stories) if variant in story.variants]
        examples = [stories[b].variants[variant] for b in chosen]
        for b, example in zip(chosen, examples, strict=True):
            check_pair(stories[b].original, example)
        rows = [row for row, _ in self.encode(examples)]
        features: list[PairFeature] = [
            pair_feature(originals[b], row, example, 1, self.special)
            for b, row, example in zip(chosen, rows, examples, strict=True)
        ]
        inputs, _, shift_R = self.collator.pad(rows)
        row_R = torch.tensor(chosen)
        half_P = torch.from_numpy(np.repeat(np.arange(len(chosen)), [len(f.variant_P) for f in features]))
        return VariantHalf(
            inputs=inputs,
            cls_R=torch.tensor([row.cls for row in rows]) + shift_R,
            row_R=row_R,
            original_P=joined([f.original_P for f in features]) + shift_B[row_R][half_P],
            variant_P=joined([f.variant_P for f in features]) + shift_R[half_P],
            half_P=half_P,
        )


def joined(arrays: Sequence[np.ndarray]) -> Tensor:
    """Index arrays behind one another."""
    return torch.from_numpy(np.concatenate(arrays).astype(np.int64))


def spread(counts: Sequence[int], most: int) -> Tensor:
    """At most `most` items of each of several groups that lie behind one another, evenly spread.

    >>> spread([2, 5], 3).tolist()
    [0, 1, 2, 4, 6]
    """
    starts = np.cumsum([0, *counts[:-1]])
    chosen = [
        start + np.linspace(0, count - 1, min(count, most)).round().astype(np.int64)
        for start, count in zip(starts, counts, strict=True)
    ]
    return joined(chosen)
