"""The original story beside a variant of it, token by token: what the embedding shift is measured on.

Tokens are aligned by character offsets: a variant's context begins with pieces of the original
(`QAExample.kept`), so each of its tokens there has a place in the original; a pair needs the same characters
and the same token (faithfulness spec 4.2). Pairs are taken from the first windows.

Columns of a table: the tokens of both halves (`original_input_ids`, ..., `variant_cls`), `windows` of the
original (with more than one, the comparison sees only a part of the story), and the common tokens in either
half (`original_common`, `variant_common`). Rows of questions without such a variant hold `rejected` alone.

Shape letters: T tokens, P common tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from data_modules.encoding.questions import encode_examples
from data_modules.encoding.tables import list_column
from data_modules.encoding.windows import EncodedRow, Encoding, token_columns
from data_modules.schema import REFORMATTED, QAExample
from storage.errors import DataError


def encode_pairs(
    pairs: Sequence[tuple[QAExample, QAExample]], tokenizer: Any, encoding: Encoding
) -> pa.Table:
    """The tokens of originals, each beside its variant.

    Raises:
        DataError: a variant is not made from its original.
    """
    for original, variant in pairs:
        kept = "".join(original.context[start:end] for start, end in variant.kept)
        # A new wording may share no token's place with the original.
        if variant.variant not in REFORMATTED and not (kept and variant.context.startswith(kept)):
            raise DataError(f"{variant.id}: this {variant.variant} row is not made from its original")
    originals, variants = (
        first_windows([pair[half] for pair in pairs], tokenizer, encoding) for half in (0, 1)
    )
    common = [
        common_tokens(one, two, example.kept)
        for (one, _), (two, _), (_, example) in zip(originals, variants, pairs, strict=True)
    ]
    return pa.table(
        {
            **token_columns([row for row, _ in originals], "original_"),
            **token_columns([row for row, _ in variants], "variant_"),
            "original_common": list_column([original_P for original_P, _ in common], np.int32),
            "variant_common": list_column([variant_P for _, variant_P in common], np.int32),
            "windows": pa.array([windows for _, windows in originals], pa.int32()),
        }
    )


def first_windows(
    examples: Sequence[QAExample], tokenizer: Any, encoding: Encoding
) -> list[tuple[EncodedRow, int]]:
    """The first window of every example and how many it has."""
    rows = encode_examples(examples, tokenizer, encoding)
    windows = [list(found) for _, found in groupby(rows, key=lambda row: row.example)]
    return [(found[0], len(found)) for found in windows]


def common_tokens(
    original: EncodedRow, variant: EncodedRow, kept: Sequence[tuple[int, int]]
) -> tuple[list[int], list[int]]:
    """Where the P tokens that two stories share stand in either; `kept` is the variant's."""
    columns = zip(original.offsets_TE.tolist(), original.input_ids_T.tolist(), strict=True)
    place = {(start, end, token): t for t, ((start, end), token) in enumerate(columns) if start >= 0}
    original_P, variant_P = [], []
    columns = zip(variant.offsets_TE.tolist(), variant.input_ids_T.tolist(), strict=True)
    for t, ((start, end), token) in enumerate(columns):
        characters = in_original(start, end, kept) if start >= 0 else None
        if characters and (*characters, token) in place:
            original_P.append(place[(*characters, token)])
            variant_P.append(t)
    return original_P, variant_P


def in_original(start: int, end: int, kept: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """Where characters start .. end - 1 of a variant stand in the original; None if not in one piece."""
    before = 0
    for first, last in kept:
        length = last - first
        if before <= start and end <= before + length:
            return start - before + first, end - before + first
        before += length
    return None
