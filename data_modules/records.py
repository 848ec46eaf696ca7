"""Files of our own: JSON Lines, on each line a record of schema.py as `dataclasses.asdict` gives it.

write_records(groups, "groups.jsonl")
list(read_records(Group, json_lines("groups.jsonl"), "groups.jsonl"))
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from data_modules.schema import Group, QAExample, ScoredGroup
from storage.files import atomic_text
from storage.json_files import check, json_lines

Record = TypeVar("Record")


def write_records(records: Iterable[Any], path: str | Path) -> int:
    """Write a file, whole or not at all; returns how many records it holds."""
    with atomic_text(path) as file:
        lines = (json.dumps(asdict(record), ensure_ascii=False) + "\n" for record in records)
        return sum(1 for line in lines if file.write(line))


def read_questions(rows: Iterable[tuple[str, Any]], source: str) -> Iterator[QAExample]:
    """(place, row) of a file of questions -> questions; DataError names the place and the field."""
    yield from (check(row, QAExample, where) for where, row in rows)


def read_groups(rows: Iterable[tuple[str, Any]], source: str) -> Iterator[Group]:
    """The groups of a file of groups, or of groups with scores."""
    for where, row in rows:
        yield check(row.get("group", row) if isinstance(row, dict) else row, Group, where)


def read_scored(path: str | Path) -> Iterator[ScoredGroup]:
    """The groups of a file with their scores."""
    yield from (record for _, record in json_lines(path, ScoredGroup))
