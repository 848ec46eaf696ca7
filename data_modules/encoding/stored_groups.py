"""Groups and their rows in Arrow files: written by all cores, read where they lie.

    StoredGroups(files)          like a list of Group; a group is decoded when somebody asks for it
    StoredGroupFeatures(files)   like a list of GroupFeature; its arrays are views of mapped files

Shape letters: N groups, V variants of a group (4), S subjects (2), E the two boundaries (start, end).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from data_modules.batching.collate import GroupIds
from data_modules.encoding.arrow_rows import MappedRows, list_array
from data_modules.encoding.stored_questions import StoredRows, row_columns
from data_modules.encoding.windows import Encoding, GroupFeature, encode_groups
from data_modules.schema import Group, Span, UnderspecifiedQuestion

if TYPE_CHECKING:
    import pyarrow as pa


def group_line(group: Group) -> str:
    """A group as JSON in ASCII, so that any text survives."""
    variants = [
        [v.context, v.question, v.advice, [[s.start, s.end, s.text] for s in v.candidates]]
        for v in group.variants
    ]
    names = [group.template, group.category, group.attribute, group.advice_class, group.advice_id]
    return json.dumps([group.subjects, *names, variants])


def read_group(line: str) -> Group:
    """The group of such a line."""
    subjects, template, category, attribute, advice_class, advice_id, variants = json.loads(line)
    one, two, three, four = (
        UnderspecifiedQuestion(context, question, (Span(*first), Span(*second)), advice)
        for context, question, advice, (first, second) in variants
    )
    return Group(
        tuple(subjects), template, category, attribute, advice_class, advice_id, (one, two, three, four)
    )


def group_table(groups: Sequence[Group], ids: Sequence[GroupIds]) -> pa.Table:
    """Rows of groups with their ids."""
    import pyarrow as pa

    return pa.table(
        {
            "line": pa.array([group_line(group) for group in groups], type=pa.string()),
            "advice_class": pa.array([i.advice_class for i in ids], type=pa.int32()),
            "first": pa.array([i.subjects[0] for i in ids], type=pa.int32()),
            "second": pa.array([i.subjects[1] for i in ids], type=pa.int32()),
            "attribute": pa.array([i.attribute for i in ids], type=pa.int32()),
        }
    )


class StoredGroups(Sequence[Group]):
    """The groups of some files of rows; one that was asked for is kept."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._rows = MappedRows(files)
        self._decoded: dict[int, Group] = {}

    def ids(self) -> list[GroupIds]:
        """What every group is, as integers."""
        names = ("advice_class", "first", "second", "attribute")
        columns = (self._rows.scalars(name).tolist() for name in names)
        return [GroupIds(c, (x1, x2), a) for c, x1, x2, a in zip(*columns, strict=True)]

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredGroups, (self._rows.files,)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Group: ...
    @overload
    def __getitem__(self, index: slice) -> list[Group]: ...
    def __getitem__(self, index: int | slice) -> Group | list[Group]:
        if isinstance(index, slice):
            return [read_group(self._rows.text("line", row)) for row in range(*index.indices(len(self)))]
        at = range(len(self))[index]
        if at not in self._decoded:
            self._decoded[at] = read_group(self._rows.text("line", at))
        return self._decoded[at]


@dataclass(frozen=True)
class MakeGroupRows:
    """The rows of groups first .. last - 1, four each."""

    groups: StoredGroups
    tokenizer: Any
    encoding: Encoding

    def __call__(self, first: int, last: int) -> pa.Table:
        import pyarrow as pa

        features = encode_groups(self.groups[first:last], self.tokenizer, self.encoding)
        candidates = [variant_SE.reshape(-1) for f in features for variant_SE in f.candidate_VSE]
        rows = [row for feature in features for row in feature.rows]
        columns = row_columns(rows, first=4 * first)
        return pa.table({**columns, "candidates": list_array(candidates, np.int32)})


class StoredGroupFeatures(Sequence[GroupFeature]):
    """The rows of groups with the places of their subjects."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = tuple(files)
        rows = MappedRows(files)
        self._rows = StoredRows(rows)
        candidates = rows.table.column("candidates").combine_chunks().values.to_numpy()
        self._candidate_NVSE = candidates.astype(np.int64).reshape(-1, 4, 2, 2)
        self.lengths_N: np.ndarray = self._rows.lengths_N.reshape(-1, 4).max(axis=1)
        """Tokens of every group's longest row."""

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredGroupFeatures, (self._files,)

    def __len__(self) -> int:
        return len(self.lengths_N)

    @overload
    def __getitem__(self, index: int) -> GroupFeature: ...
    @overload
    def __getitem__(self, index: slice) -> list[GroupFeature]: ...
    def __getitem__(self, index: int | slice) -> GroupFeature | list[GroupFeature]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        rows = tuple(self._rows[4 * index + v] for v in range(4))
        return GroupFeature(rows, self._candidate_NVSE[index])
