"""The original story beside a variant of it, token by token: what the embedding shift is measured on.

Tokens are aligned by character offsets: a variant's context begins with pieces of the original
(`QAExample.kept`), so each of its tokens there has a place in the original; a pair needs the same characters
and the same token (faithfulness spec 4.2). Pairs are taken from the first windows.

Columns of a table: the tokens of both halves (`original_input_ids`, ..., `variant_cls`), `windows` of the
original, and the common tokens in either half (`original_common`, `variant_common`). Rows of questions that
allow no such variant hold `rejected` alone.

Shape letters: T tokens, P aligned token pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from data_modules.encoding.tables import list_column
from data_modules.encoding.windows import EncodedRow, Encoding, asked, encode_texts, token_columns
from data_modules.schema import REFORMATTED, QAExample
from storage.errors import DataError


class PairFeature(NamedTuple):
    """The first windows of the original and of the variant, and their common tokens."""

    original: EncodedRow
    variant: EncodedRow
    original_P: np.ndarray
    variant_P: np.ndarray
    windows: int
    """Of the original; with more than one, the comparison sees only a part of the story."""


def encode_pairs(
    pairs: Sequence[tuple[QAExample, QAExample]], tokenizer: Any, encoding: Encoding
) -> pa.Table:
    """The tokens of every pair of an original and its variant.

    Args:
        pairs: originals, each with its variant.
        tokenizer: a fast tokenizer of transformers.
        encoding: how text becomes rows.

    Raises:
        DataError: the two of a pair do not belong together.
    """
    for original, variant in pairs:
        check_pair(original, variant)
    halves = [first_windows([pair[half] for pair in pairs], tokenizer, encoding) for half in (0, 1)]
    features = [
        pair_feature(original, variant, example, windows)
        for (original, windows), (variant, _), (_, example) in zip(*halves, pairs, strict=True)
    ]
    return pa.table(
        {
            **token_columns([f.original for f in features], "original_"),
            **token_columns([f.variant for f in features], "variant_"),
            "original_common": list_column([f.original_P for f in features], np.int32),
            "variant_common": list_column([f.variant_P for f in features], np.int32),
            "windows": pa.array([f.windows for f in features], pa.int32()),
        }
    )


def check_pair(original: QAExample, variant: QAExample) -> None:
    """Raise DataError unless `variant` is made from `original`."""
    if original.dataset != variant.dataset:
        raise DataError(
            f"{variant.id}: variants of different data sets are compared "
            f"({original.dataset or 'unnamed'} and {variant.dataset or 'unnamed'})"
        )
    kept = "".join(original.context[start:end] for start, end in variant.kept)
    if variant.variant in REFORMATTED:  # new context may share no token's place with the original
        return
    if not variant.kept or not variant.context.startswith(kept):
        raise DataError(
            f"{variant.id}: this {variant.variant} row is not made from the story it is compared with"
        )


def first_windows(
    examples: Sequence[QAExample], tokenizer: Any, encoding: Encoding
) -> list[tuple[EncodedRow, int]]:
    """The first window of every example and how many it has."""
    texts = (asked(ex, encoding, tokenizer) for ex in examples)
    found: list[tuple[EncodedRow, int]] = []
    for row in encode_texts(texts, tokenizer, encoding):
        if row.example == len(found):
            found.append((row, 1))
        else:
            found[-1] = (found[-1][0], found[-1][1] + 1)
    return found


def pair_feature(original: EncodedRow, variant: EncodedRow, example: QAExample, windows: int) -> PairFeature:
    """Align the tokens of two stories; `example` is the variant's."""
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
