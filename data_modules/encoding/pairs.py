"""The original story beside a variant of it, token by token: what the embedding shift is measured on.

Tokens are aligned by character offsets: a variant's context begins with pieces of the original
(`QAExample.kept`), so each of its tokens there has a place in the original; a pair needs the same characters
and the same token (faithfulness spec 4.2). Pairs are taken from the first windows.

Shape letters: B examples, T tokens, P aligned token pairs of all examples together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import Dataset

from data_modules.batching.collate import Collator, PairBatch
from data_modules.batching.samplers import sorted_batches
from data_modules.encoding.windows import EncodedRow, Encoding, encode_texts, full_query
from data_modules.schema import QAExample, Variant
from storage.errors import DataError


class PairFeature(NamedTuple):
    """The first windows of the original and of the variant, and their common tokens."""

    original: EncodedRow
    variant: EncodedRow
    original_P: np.ndarray
    variant_P: np.ndarray
    windows: int
    """Of the original; with more than one, the comparison sees only a part of the story."""


class PairSet(Dataset):
    """Originals beside one variant of each.

    Args:
        pairs: (original, variant) examples of the same id.
        tokenizer: a fast tokenizer of transformers.
        encoding: how text becomes rows.
        include_question: question tokens count as common tokens, too.
        features: what they look like in tokens, where that is known already.

    Raises:
        DataError: the two of a pair do not belong together.
    """

    def __init__(
        self,
        pairs: Sequence[tuple[QAExample, QAExample]],
        tokenizer: Any,
        encoding: Encoding,
        *,
        include_question: bool = False,
        features: Sequence[PairFeature] | None = None,
    ) -> None:
        self.pairs = list(pairs) if features is None else pairs
        self.variant: Variant = self.pairs[0][1].variant if self.pairs else "os"
        if features is None:
            features = encode_pairs(self.pairs, tokenizer, encoding, include_question=include_question)
        self.features = features
        self.collator = Collator(tokenizer, encoding.pad_to_multiple_of)

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, index: Sequence[int]) -> PairBatch:
        return collate_pairs(self.features, index, self.collator)

    def batches(self, rows_per_batch: int) -> list[list[int]]:
        """Every pair once, similar lengths together; a pair is two rows."""
        lengths = [len(feature.original.input_ids_T) for feature in self.features]
        return sorted_batches(lengths, max(1, rows_per_batch // 2))


def encode_pairs(
    pairs: Sequence[tuple[QAExample, QAExample]],
    tokenizer: Any,
    encoding: Encoding,
    *,
    include_question: bool = False,
) -> list[PairFeature]:
    """The tokens of every pair; each is for itself: the pairs may come in parts.

    Raises:
        DataError: the two of a pair do not belong together.
    """
    for original, variant in pairs:
        check_pair(original, variant)
    special = frozenset(tokenizer.all_special_ids) if include_question else None
    originals = first_windows([pair[0] for pair in pairs], tokenizer, encoding)
    variants = first_windows([pair[1] for pair in pairs], tokenizer, encoding)
    return [
        pair_feature(original[0], variant[0], examples[1], original[1], special)
        for original, variant, examples in zip(originals, variants, pairs, strict=True)
    ]


def pair_up(
    originals: Sequence[QAExample], variants: Sequence[QAExample]
) -> list[tuple[QAExample, QAExample]]:
    """Each variant with its original, by id, in the variants' order.

    Raises:
        DataError: a variant without an original.
    """
    by_id = {example.id: example for example in originals}
    for variant in variants:
        if variant.id not in by_id:
            raise DataError(
                f"{variant.id}: a {variant.variant} row without its original; compare one data set's variants"
            )
    return [(by_id[variant.id], variant) for variant in variants]


def check_pair(original: QAExample, variant: QAExample) -> None:
    """Raise DataError unless `variant` is made from `original`."""
    if original.dataset != variant.dataset:
        raise DataError(
            f"{variant.id}: variants of different data sets are compared "
            f"({original.dataset or 'unnamed'} and {variant.dataset or 'unnamed'})"
        )
    kept = "".join(original.context[start:end] for start, end in variant.kept)
    if not variant.kept or not variant.context.startswith(kept):
        raise DataError(
            f"{variant.id}: this {variant.variant} row is not made from the story it is compared with"
        )


def first_windows(
    examples: Sequence[QAExample], tokenizer: Any, encoding: Encoding
) -> list[tuple[EncodedRow, int]]:
    """The first window of every example and how many it has."""
    texts = ((ex.context, full_query(ex, encoding, tokenizer), ex.id) for ex in examples)
    found: list[tuple[EncodedRow, int]] = []
    for row in encode_texts(texts, tokenizer, encoding):
        if row.example == len(found):
            found.append((row, 1))
        else:
            found[-1] = (found[-1][0], found[-1][1] + 1)
    return found


def pair_feature(
    original: EncodedRow,
    variant: EncodedRow,
    example: QAExample,
    windows: int,
    special: frozenset[int] | None,
) -> PairFeature:
    """Align two rows; `example` is the variant's, `special` the ids to leave out of the question's tokens
    (None: leave out the whole question)."""
    place = {
        (int(start), int(end), int(token)): t
        for t, ((start, end), token) in enumerate(zip(original.offsets_TE, original.input_ids_T, strict=True))
        if start >= 0
    }
    pairs = []
    for t, ((start, end), token) in enumerate(zip(variant.offsets_TE, variant.input_ids_T, strict=True)):
        moved = in_original(int(start), int(end), example.kept) if start >= 0 else None
        at = place.get((*moved, int(token))) if moved else None
        if at is not None:
            pairs.append((at, t))
    if special is not None:
        pairs += question_pairs(original, variant, special)
    columns = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return PairFeature(original, variant, columns[:, 0], columns[:, 1], windows)


def in_original(start: int, end: int, kept: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """Where characters start .. end - 1 of a variant stand in the original; None if not in one piece."""
    before = 0
    for first, last in kept:
        length = last - first
        if before <= start and end <= before + length:
            return start - before + first, end - before + first
        before += length
    return None


def question_pairs(
    original: EncodedRow, variant: EncodedRow, special: frozenset[int]
) -> list[tuple[int, int]]:
    """Question tokens of two rows with the same question, one by one."""
    sides = []
    for row in (original, variant):
        outside = np.flatnonzero(row.offsets_TE[:, 0] < 0)
        sides.append([int(t) for t in outside if int(row.input_ids_T[t]) not in special])
    return list(zip(*sides, strict=True)) if len(sides[0]) == len(sides[1]) else []


def collate_pairs(features: Sequence[PairFeature], index: Sequence[int], collator: Collator) -> PairBatch:
    """Pairs `index` as one batch of two padded halves."""
    chosen = [features[i] for i in index]
    halves = [collator.pad([f.original for f in chosen]), collator.pad([f.variant for f in chosen])]
    shifts = [half[2] for half in halves]
    counts = torch.tensor([len(f.original_P) for f in chosen])
    row_P = torch.arange(len(chosen)).repeat_interleave(counts)
    original_P = torch.from_numpy(np.concatenate([f.original_P for f in chosen]))
    variant_P = torch.from_numpy(np.concatenate([f.variant_P for f in chosen]))
    return PairBatch(
        original=halves[0][0],
        variant=halves[1][0],
        original_cls_B=torch.tensor([f.original.cls for f in chosen]) + shifts[0],
        variant_cls_B=torch.tensor([f.variant.cls for f in chosen]) + shifts[1],
        original_P=original_P + shifts[0][row_P],
        variant_P=variant_P + shifts[1][row_P],
        row_P=row_P,
        pair_B=torch.tensor(list(index)),
    )
