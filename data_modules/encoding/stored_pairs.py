"""Originals beside a variant of each in Arrow files: written by all cores, read where they lie.

Shape letters: P common tokens of a pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from data_modules.encoding.arrow_rows import MappedRows, list_array
from data_modules.encoding.pairs import PairFeature, encode_pairs
from data_modules.encoding.stored_questions import StoredExamples, StoredRows, row_columns
from data_modules.encoding.windows import Encoding
from data_modules.schema import QAExample

if TYPE_CHECKING:
    import pyarrow as pa

Pair = tuple[QAExample, QAExample]


class StoredPairs(Sequence[Pair]):
    """Every question of a variant behind its original, which stands in the same row of its own files."""

    def __init__(self, originals: StoredExamples, variants: StoredExamples) -> None:
        self._originals, self._variants = originals, variants
        self._original_of = np.searchsorted(originals.row_N, variants.row_N)

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredPairs, (self._originals, self._variants)

    def __len__(self) -> int:
        return len(self._variants)

    @overload
    def __getitem__(self, index: int) -> Pair: ...
    @overload
    def __getitem__(self, index: slice) -> list[Pair]: ...
    def __getitem__(self, index: int | slice) -> Pair | list[Pair]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self._originals[int(self._original_of[index])], self._variants[index]


@dataclass(frozen=True)
class MakePairs:
    """The rows of pairs first .. last - 1."""

    pairs: StoredPairs
    tokenizer: Any
    encoding: Encoding

    def __call__(self, first: int, last: int) -> pa.Table:
        import pyarrow as pa

        features = encode_pairs(self.pairs[first:last], self.tokenizer, self.encoding)
        return pa.table(
            {
                **row_columns([f.original for f in features], first, "original_"),
                **row_columns([f.variant for f in features], first, "variant_"),
                "original_common": list_array([f.original_P for f in features], np.int32),
                "variant_common": list_array([f.variant_P for f in features], np.int32),
                "windows": pa.array([f.windows for f in features], type=pa.int32()),
            }
        )


class StoredPairFeatures(Sequence[PairFeature]):
    """Pairs in tokens."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = tuple(files)
        rows = MappedRows(files)
        self._original, self._variant = StoredRows(rows, "original_"), StoredRows(rows, "variant_")
        self._original_common = rows.lists("original_common")
        self._variant_common = rows.lists("variant_common")
        self._windows = rows.scalars("windows")

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredPairFeatures, (self._files,)

    def __len__(self) -> int:
        return len(self._windows)

    @overload
    def __getitem__(self, index: int) -> PairFeature: ...
    @overload
    def __getitem__(self, index: slice) -> list[PairFeature]: ...
    def __getitem__(self, index: int | slice) -> PairFeature | list[PairFeature]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return PairFeature(
            self._original[index],
            self._variant[index],
            self._original_common[index].astype(np.int64),
            self._variant_common[index].astype(np.int64),
            int(self._windows[index]),
        )
