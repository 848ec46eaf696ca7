"""Pairs of tokenised stories: originals with a variant of each, and the tokens that both have.

Shape letters: P common tokens, N pairs.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from interventune.data_modules.encoding.windows import Batches, sorted_batches
from interventune.storage.documents import DataError

from .sets import QABatch, QASet, Tokens


class PairBatch(NamedTuple):
    """Original stories with a variant of each, in one window; P is over all rows."""

    original: QABatch
    variant: QABatch
    original_P: Tensor
    variant_P: Tensor
    """Index of every common token in its row of the originals or variants."""
    row_P: Tensor
    """The row of every common token."""


class PairSet:
    """Originals paired with one variant of some of them, in the first window that differs.

    The deletion may be far from a story's beginning. A pair without such a window is left out,
    unless a set is paired with itself. DataError if two originals share an id.
    """

    family = "shift"  # in the keys of metrics

    def __init__(self, originals: QASet, variants: QASet, variant: str = "") -> None:
        self.originals = originals
        self.variants = variants
        self.variant = variant
        ids = originals.column("id")
        windows_of = dict(zip(ids, originals.windows(), strict=True))
        if len(windows_of) < len(ids):
            name, count = Counter(ids).most_common(1)[0]
            raise DataError(
                f"{count} questions have the id {name!r}: stories and variants are paired by id"
            )
        tokens = originals.token_ids()
        variant_tokens = variants.token_ids()
        variant_windows = variants.windows()
        pairs = []
        for question, name in enumerate(variants.column("id")):
            if name not in windows_of:
                continue
            sides = windows_of[name], variant_windows[question]
            for window in range(max(map(len, sides))):
                # The last window stands for those after it.
                original, changed = (side[min(window, len(side) - 1)] for side in sides)
                same = np.array_equal(tokens[original], variant_tokens[changed])
                if originals is variants or not same:
                    pairs.append((question, original, changed))
                    break
        self.question_N, self.original_N, self.variant_N = (
            np.array(pairs, np.int64).reshape(-1, 3).T
        )
        """The index of each pair's question among the variants, and its window in either set."""
        self._kept = variants.column("kept")

    def __getitem__(self, index: Sequence[int]) -> PairBatch:
        originals = self.original_N[index]
        variants = self.variant_N[index]
        original = self.originals[originals]
        variant = self.variants[variants]
        pairs = zip(
            self.originals.tokens(originals),
            self.variants.tokens(variants),
            self.question_N[index],
            strict=True,
        )
        common = [
            (row, *places)
            for row, (tokens, variant_tokens, question) in enumerate(pairs)
            for places in common_tokens(tokens, variant_tokens, self._kept[question])
        ]
        row_P, original_P, variant_P = torch.tensor(common, dtype=torch.int64).view(-1, 3).T
        shifted = original_P + original.shift_B[row_P], variant_P + variant.shift_B[row_P]
        return PairBatch(original, variant, *shifted, row_P)

    def batches(self, rows_per_batch: int) -> Batches:
        """Return batches with every pair once, similar lengths together; a pair is two rows."""
        return sorted_batches(self.originals.lengths[self.original_N], max(1, rows_per_batch // 2))


def common_tokens(
    original: Tokens, variant: Tokens, kept: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """Yield the indices, in the original and in the variant, of each token that two stories share:
    the same token of the same characters (Chaturvedi et al. 2023, section 5.2). The variant begins
    with `kept` pieces of the original.
    """
    index = {token: t for t, token in enumerate(original)}
    for t, (start, end, token) in enumerate(variant):
        before = 0
        for first, last in kept:
            if before <= start and end <= before + last - first:
                moved = (start + first - before, end + first - before, token)
                if moved in index:
                    yield index[moved], t
                break
            before += last - first
