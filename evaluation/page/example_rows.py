"""Some rows of a report's examples.jsonl, and which of them stand behind a number.

A field whose every value is a part of some metric key (`checkpoint` and `variant`, where the keys are
`before/ts_r/em`) says which number a row belongs to. Of each combination of such values the first rows are
taken, so that there are some behind every number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage.json_files import json_lines

MOST_VALUES = 200
"""A field with more values than this names no group."""


@dataclass(frozen=True)
class ExampleRows:
    """The rows that a page shows.

    Args:
        columns: the fields, in the order in which they appear.
        rows: in the order of the file.
        total: rows in the file.
        groups: field to its values, for fields that say which number a row belongs to.
        each: rows of each combination at most; 0 where all rows are shown.
    """

    columns: tuple[str, ...] = ()
    rows: tuple[Mapping[str, Any], ...] = ()
    total: int = 0
    groups: Mapping[str, frozenset[str]] | None = None
    each: int = 0

    def finding(self, parts: Iterable[str]) -> dict[str, str]:
        """Field to value, for rows that stand behind the number whose key (or table row) has these parts.

        >>> rows = ExampleRows(groups={"checkpoint": frozenset({"a", "b"}), "variant": frozenset({"ts"})})
        >>> rows.finding("a/ts/em".split("/"))
        {'checkpoint': 'a', 'variant': 'ts'}
        """
        found: dict[str, str] = {}
        for part in parts:
            fields = [name for name, values in (self.groups or {}).items() if part in values]
            for name in fields[:1]:
                found.setdefault(name, part)
        return found


def read_rows(path: Path, keys: Iterable[str], limit: int) -> ExampleRows:
    """At most `limit` rows of `path`; none where there is no such file.

    Args:
        keys: metric keys of the report.

    Raises:
        DataError: a line that is no object, with its number.
    """
    if not path.exists():
        return ExampleRows()
    groups = _groups(path, {part for key in keys for part in key.split("/")})
    held: dict[tuple[str, ...], list[tuple[int, dict[str, Any]]]] = {}
    total = 0
    for total, (_, row) in enumerate(json_lines(path, dict[str, Any]), start=1):
        group = held.setdefault(tuple(str(row.get(name, "")) for name in groups), [])
        if len(group) < limit:
            group.append((total, row))
    each = 0 if total <= limit else max(1, limit // max(1, len(held)))
    taken = [pair for group in held.values() for pair in (group[:each] if each else group)]
    rows = [row for _, row in sorted(taken[:limit], key=lambda pair: pair[0])]
    columns = tuple(dict.fromkeys(name for row in rows for name in row))
    return ExampleRows(columns, tuple(rows), total, groups, each)


def _groups(path: Path, parts: set[str]) -> dict[str, frozenset[str]]:
    """Fields of texts that are all parts of keys; an empty text says nothing for or against."""
    values: dict[str, set[str]] = {}
    out: set[str] = set()
    for _, row in json_lines(path, dict[str, Any]):
        for name, value in row.items():
            if name in out or value == "":
                continue
            if not isinstance(value, str) or value not in parts or len(values.get(name, ())) > MOST_VALUES:
                out.add(name)
            else:
                values.setdefault(name, set()).add(value)
    return {name: frozenset(found) for name, found in values.items() if name not in out}
