"""Pairs of tokenised stories: originals with a variant of each, and the tokens that both have.

Shape letters: P common tokens, N pairs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from interventune.data_modules.batching.sets import QABatch, QASet, Tokens
from interventune.data_modules.encoding.windows import sorted_batches
from interventune.storage.errors import DataError


class PairBatch(NamedTuple):
    """Original stories with a variant of each, in one window; P is over all rows."""

    original: QABatch
    variant: QABatch
    original_P: Tensor
    variant_P: Tensor
    """Index of every common token in its row of the originals or variants."""
    row_P: Tensor
    """The row of every common token."""


class PairSet(Dataset):
    """Originals paired with one variant of some of them, in the first window that differs: the
    deletion may be far from a story's beginning. A pair without such a window is left out, unless a
    set is paired with itself. DataError if two originals share an id.
    """

    family = "shift"  # in the keys of metrics

    def __init__(self, originals: QASet, variants: QASet, variant: str = "") -> None:
        self.originals, self.variants, self.variant = originals, variants, variant
        ids, pairs = originals.column("id"), list[tuple[int, int, int]]()
        own = dict(zip(ids, originals.windows(), strict=True))
        if len(own) < len(ids):
            name, count = Counter(ids).most_common(1)[0]
            raise DataError(
                f"{count} questions have the id {name!r}: stories and variants are paired by id"
            )
        tokens, made = originals.token_ids(), variants.token_ids()
        windows = variants.windows()
        for question, name in enumerate(variants.column("id")):
            sides = own.get(name, ()), windows[question]
            for window in range(max(map(len, sides)) if name in own else 0):
                # The last window stands for those after it.
                one, other = (side[min(window, len(side) - 1)] for side in sides)
                if originals is variants or not np.array_equal(tokens[one], made[other]):
                    pairs.append((question, one, other))
                    break
        self.question_N, self.original_N, self.variant_N = (
            np.array(pairs, np.int64).reshape(-1, 3).T
        )
        """The index of each pair's question among the variants, and its window in either set."""
        self._kept = variants.column("kept")

    def __len__(self) -> int:
        return len(self.question_N)

    def __getitem__(self, index: Sequence[int]) -> PairBatch:
        one, two = self.original_N[index], self.variant_N[index]
        original, variant = self.originals[one], self.variants[two]
        tokens = zip(self.originals.tokens(one), self.variants.tokens(two), strict=True)
        common = [
            common_tokens(*pair, self._kept[q])
            for q, pair in zip(self.question_N[index], tokens, strict=True)
        ]
        row_P = torch.arange(len(common)).repeat_interleave(
            torch.tensor([len(found) for found in common])
        )
        original_P, variant_P = torch.tensor(list(chain(*common)), dtype=torch.int64).view(-1, 2).T
        shifted = original_P + original.shift_B[row_P], variant_P + variant.shift_B[row_P]
        return PairBatch(original, variant, *shifted, row_P)

    def batches(self, rows_per_batch: int) -> list[list[int]]:
        """Return batches with every pair once, similar lengths together; a pair is two rows."""
        return sorted_batches(self.originals.lengths[self.original_N], max(1, rows_per_batch // 2))


def common_tokens(
    original: Tokens, variant: Tokens, kept: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Return the indices, in the original and in the variant, of each token that two stories share:
    the same token of the same characters (faithfulness spec 4.2). The variant begins with `kept`
    pieces of the original.
    """
    place = {token: t for t, token in enumerate(original) if token[0] >= 0}
    moved = ((*in_original(start, end, kept), token) for start, end, token in variant)
    return [(place[token], t) for t, token in enumerate(moved) if token in place]


def in_original(start: int, end: int, kept: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Map characters start .. end - 1 of a variant to the original; (-1, -1) if they are not in one
    piece.
    """
    before = 0
    for first, last in kept:
        length = last - first
        if before <= start and end <= before + length:
            return start - before + first, end - before + first
        before += length
    return -1, -1
