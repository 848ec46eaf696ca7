"""Questions, their variants and their windows in Arrow files: written by all cores, read where they lie.

    StoredExamples(files)      like a list of QAExample; a question is decoded when somebody asks for it
    StoredFeatures(parts)      like a list of QAFeature; its arrays are views of mapped files

A row of questions: `line` (as perturb writes it), `answer_type`, and `reason`, empty unless the question
allows no such variant. Rejected rows stay in the file, so that row i of a variant belongs to row i of its
originals.

Shape letters: N questions or windows.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from data_modules.encoding.arrow_rows import MappedRows, list_array
from data_modules.encoding.questions import QAFeature, encode_qa
from data_modules.encoding.windows import EncodedRow, Encoding
from data_modules.interventions.variants import Interventions, apply, with_rationales
from data_modules.questions.rows import from_line, to_line
from data_modules.schema import ANSWER_TYPES, QAExample, Rejected, Variant

if TYPE_CHECKING:
    import pyarrow as pa


class StoredExamples(Sequence[QAExample]):
    """The questions of some files of rows, without those that were rejected.

    A question that was asked for by its index is kept, so that evaluation decodes each only once; slices are
    not.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self._rows = MappedRows(files)
        table = self._rows.table
        reasons = table.column("reason")
        self.rejected: Counter[str] = Counter(
            {c["values"]: c["counts"] for c in reasons.value_counts().to_pylist() if c["values"]}
        )
        """How many rows were left out, by reason."""
        self.row_N: np.ndarray = np.arange(len(self._rows))
        if self.rejected:
            self.row_N = np.array([row for row, reason in enumerate(reasons.to_pylist()) if not reason], int)
        """In which row each question stands."""
        self.answer_type_N: np.ndarray = self._rows.scalars("answer_type")[self.row_N]
        """Index of its answer type into schema.ANSWER_TYPES."""
        self._decoded: dict[int, QAExample] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredExamples, (self._rows.files,)

    def __len__(self) -> int:
        return len(self.row_N)

    @overload
    def __getitem__(self, index: int) -> QAExample: ...
    @overload
    def __getitem__(self, index: slice) -> list[QAExample]: ...
    def __getitem__(self, index: int | slice) -> QAExample | list[QAExample]:
        if isinstance(index, slice):
            return [self._decode(int(row)) for row in self.row_N[index]]
        at = range(len(self))[index]
        if at not in self._decoded:
            self._decoded[at] = self._decode(int(self.row_N[at]))
        return self._decoded[at]

    def digest(self) -> str:
        """SHA-256 of all rows, however they are divided into files."""
        digest = hashlib.sha256()
        for line in self._rows.texts("line"):
            digest.update(line.encode())
        return digest.hexdigest()

    def _decode(self, row: int) -> QAExample:
        return from_line(self._rows.text("line", row), "prepared data")


def example_table(results: Iterable[QAExample | Rejected]) -> pa.Table:
    """Rows of questions, and of those that were rejected."""
    import pyarrow as pa

    listed = list(results)
    kept = [isinstance(result, QAExample) for result in listed]
    kinds = [ANSWER_TYPES.index(r.answer_type) if isinstance(r, QAExample) else -1 for r in listed]
    return pa.table(
        {
            "line": pa.array(
                [to_line(r) if isinstance(r, QAExample) else "" for r in listed], type=pa.string()
            ),
            "answer_type": pa.array(kinds, type=pa.int8()),
            "reason": pa.array(
                ["" if is_kept else result.reason for is_kept, result in zip(kept, listed, strict=True)],  # type: ignore[union-attr]
                type=pa.string(),
            ),
        }
    )


@dataclass(frozen=True)
class MakeVariant:
    """The rows of one variant of originals first .. last - 1; see interventions.apply."""

    originals: StoredExamples
    variant: Variant
    how: Interventions
    skip_bad: bool
    sentences: Mapping[str, str] | None

    def __call__(self, first: int, last: int) -> pa.Table:
        examples: Sequence[QAExample] = self.originals[first:last]
        if self.how.rationale == "answer_sentence":
            examples = with_rationales(examples)
        return example_table(
            apply(examples, self.variant, self.how, skip_bad=self.skip_bad, sentences=self.sentences)
        )


@dataclass(frozen=True)
class MakeWindows:
    """The windows of questions first .. last - 1; `example` counts from the beginning."""

    examples: StoredExamples
    tokenizer: Any
    encoding: Encoding

    def __call__(self, first: int, last: int) -> pa.Table:
        features = encode_qa(self.examples[first:last], self.tokenizer, self.encoding)
        return window_table(features, first)


def window_table(features: Sequence[QAFeature], first: int = 0) -> pa.Table:
    """Rows of windows; `first` is added to the index of their question."""
    import pyarrow as pa

    def numbers(values: Iterable[int]) -> pa.Array:
        return pa.array(np.fromiter(values, dtype=np.int32, count=len(features)))

    return pa.table(
        {
            **row_columns([feature.row for feature in features], first),
            "start": numbers(f.start for f in features),
            "end": numbers(f.end for f in features),
            "answer_type": numbers(f.answer_type for f in features),
            "number": numbers(f.number for f in features),
            "option": numbers(f.option for f in features),
            "rationale": list_array([f.rationale_T for f in features], np.uint8),
            "max_context": list_array([f.max_context_T for f in features], np.uint8),
        }
    )


def row_columns(rows: Sequence[EncodedRow], first: int = 0, prefix: str = "") -> dict[str, pa.Array]:
    """The columns of rows of tokens, their names with a prefix."""
    import pyarrow as pa

    columns = {
        "input_ids": list_array([row.input_ids_T for row in rows], np.int32),
        "token_type_ids": list_array([row.token_type_ids_T for row in rows], np.uint8),
        "offsets": list_array([row.offsets_TE.reshape(-1) for row in rows], np.int32),
        "cls": pa.array([row.cls for row in rows], type=pa.int32()),
        "example": pa.array([row.example + first for row in rows], type=pa.int32()),
    }
    return {prefix + name: column for name, column in columns.items()}


class StoredRows:
    """Rows of tokens as they were encoded, from the columns of `row_columns`."""

    def __init__(self, rows: MappedRows, prefix: str = "") -> None:
        self._ids = rows.lists(f"{prefix}input_ids")
        self._types = rows.lists(f"{prefix}token_type_ids")
        self._offsets = rows.lists(f"{prefix}offsets")
        self._cls = rows.scalars(f"{prefix}cls")
        self.example_N = rows.scalars(f"{prefix}example")
        self.lengths_N = self._ids.lengths_N

    def __getitem__(self, index: int) -> EncodedRow:
        return EncodedRow(
            self._ids[index],
            self._types[index],
            self._offsets[index].reshape(-1, 2),
            int(self._cls[index]),
            int(self.example_N[index]),
        )


class StoredFeatures(Sequence[QAFeature]):
    """The windows of several sets of questions, one set after the other.

    Args:
        parts: of each set, its files of windows and how many questions it has.
    """

    def __init__(self, parts: Sequence[tuple[Sequence[Path], int]]) -> None:
        self._parts = [(tuple(files), count) for files, count in parts]
        rows = MappedRows([file for files, _ in self._parts for file in files])
        self._rows = StoredRows(rows)
        self._rows.example_N = self._rows.example_N + self._earlier_questions()
        names = ("start", "end", "answer_type", "number", "option")
        self._target_NK = np.stack([rows.scalars(name) for name in names], axis=1)
        self._rationale, self._max_context = rows.lists("rationale"), rows.lists("max_context")
        self.lengths_N: np.ndarray = self._rows.lengths_N
        """Tokens of every window."""

    def _earlier_questions(self) -> np.ndarray:
        """Of every window, how many questions the sets before its own have."""
        windows = [len(MappedRows(files)) for files, _ in self._parts]
        earlier = np.cumsum([0, *(count for _, count in self._parts)])[:-1]
        return np.repeat(earlier, windows).astype(np.int32)

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredFeatures, (self._parts,)

    def __len__(self) -> int:
        return len(self.lengths_N)

    @overload
    def __getitem__(self, index: int) -> QAFeature: ...
    @overload
    def __getitem__(self, index: slice) -> list[QAFeature]: ...
    def __getitem__(self, index: int | slice) -> QAFeature | list[QAFeature]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        # The masks are copies: torch takes no view of memory that it must not write to.
        masks = (self._rationale[index].astype(bool), self._max_context[index].astype(bool))
        start, end, answer_type, number, option = self._target_NK[index].tolist()
        return QAFeature(self._rows[index], start, end, answer_type, number, option, *masks)
