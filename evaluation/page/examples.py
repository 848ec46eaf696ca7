"""Some rows of a report's examples.jsonl, and which of them stand behind a number.

A field named like a dimension of the long table says which cells a row belongs to. Of each combination
of their values the first rows are taken, so that there are some behind every number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage.json_files import json_lines


@dataclass(frozen=True)
class ExampleRows:
    """The rows that a page shows.

    Args:
        columns: the fields, in the order in which they appear.
        rows: in the order of the file.
        total: rows in the file.
        by: fields that are dimensions.
        each: rows of each combination at most; 0 where all rows are shown.
    """

    columns: tuple[str, ...] = ()
    rows: tuple[Mapping[str, Any], ...] = ()
    total: int = 0
    by: tuple[str, ...] = ()
    each: int = 0

    def search(self, cell: Mapping[str, Any]) -> str:
        """What finds the rows behind a cell, for the page's search box.

        >>> ExampleRows(by=("checkpoint", "variant")).search({"checkpoint": "a", "variant": "ts", "n": 3})
        'checkpoint="a" variant="ts"'
        """
        return " ".join(f'{name}="{cell[name]}"' for name in self.by if cell.get(name, "") != "")


def read_rows(path: Path, by: Sequence[str], limit: int) -> ExampleRows:
    """At most `limit` rows of `path`; none where there is no such file.

    Args:
        by: the dimensions of the report.

    Raises:
        DataError: a line that is no object, with its number.
    """
    if not path.exists():
        return ExampleRows()
    held: dict[tuple[str, ...], list[tuple[int, dict[str, Any]]]] = {}
    fields: dict[str, None] = {}
    total = 0
    for total, (_, row) in enumerate(json_lines(path, dict[str, Any]), start=1):
        fields.update(dict.fromkeys(row))
        group = held.setdefault(tuple(str(row.get(name, "")) for name in by), [])
        if len(group) < limit:
            group.append((total, row))
    each = 0 if total <= limit else max(1, limit // max(1, len(held)))
    taken = [pair for group in held.values() for pair in (group[:each] if each else group)]
    rows = [row for _, row in sorted(taken[:limit], key=lambda pair: pair[0])]
    columns = tuple(dict.fromkeys(name for row in rows for name in row))
    return ExampleRows(columns, tuple(rows), total, tuple(name for name in by if name in fields), each)
