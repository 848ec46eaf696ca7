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
from storage.errors import DataError
from storage.files import atomic_text
from storage.json_files import BadRecords, check, json_lines

Record = TypeVar("Record")


def write_records(records: Iterable[Any], path: str | Path) -> int:
    """Write a file, whole or not at all; returns how many records it holds."""
    with atomic_text(path) as file:
        lines = (json.dumps(asdict(record), ensure_ascii=False) + "\n" for record in records)
        return sum(1 for line in lines if file.write(line))


def read_records(
    kind: type[Record], rows: Iterable[tuple[str, Any]], source: str | Path, *, skip_bad: bool = False
) -> Iterator[Record]:
    """(place, row) -> records of a kind. DataError names the place and the field; `skip_bad=True` leaves
    such rows out and warns how many."""
    with BadRecords(source, skip_bad=skip_bad) as bad:
        for where, row in rows:
            try:
                yield check(row, kind, where)
            except DataError as error:
                bad.reject(error)


def read_questions(
    rows: Iterable[tuple[str, Any]], source: str, *, skip_bad: bool = False
) -> Iterator[QAExample]:
    """The questions of a file of questions."""
    yield from read_records(QAExample, rows, source, skip_bad=skip_bad)


def read_groups(rows: Iterable[tuple[str, Any]], source: str, *, skip_bad: bool = False) -> Iterator[Group]:
    """The groups of a file of groups, or of groups with scores."""
    groups = ((where, row.get("group", row) if isinstance(row, dict) else row) for where, row in rows)
    yield from read_records(Group, groups, source, skip_bad=skip_bad)


def read_scored(path: str | Path, *, skip_bad: bool = False) -> Iterator[ScoredGroup]:
    """The groups of a file with their scores."""
    yield from read_records(ScoredGroup, json_lines(path), path, skip_bad=skip_bad)
