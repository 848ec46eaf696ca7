"""Finished pieces of long work, kept in a JSONL file: an interrupted run goes on and repeats nothing.

    work = FinishedWork(Path("consistency.work.jsonl"))
    key = work_key(model=model.name, settings=model.settings, prompt=prompt)
    record = work.get(key) or work.add(key, text=generate(prompt))

One line a piece: `{"key": ..., ...}`, appended past any buffer as it is done, so that a kill costs the piece
that was under way. Floats come back as they were written, to the bit.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import FileIO
from pathlib import Path
from typing import Any, TypeVar

from storage.errors import DataError
from storage.files import read_bytes
from storage.json_files import parse_json

logger = logging.getLogger(__name__)

Piece = TypeVar("Piece")

_START = b'{"key": '
"""What every line begins with: a piece of a line that does not is not ours to remove."""


def work_key(**parts: Any) -> str:
    """sha256 of all that a piece of work depends on (plain JSON values), in whatever order it is given."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class FinishedWork:
    """Records by key.

    Args:
        path: the JSONL file, made with the first piece; None remembers for the lifetime of the object.

    Raises:
        DataError: the file is no such store, or cannot be read or written.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._records = {} if path is None else read_work(path)
        self.found = len(self._records)
        """How many pieces earlier runs left."""

    def __contains__(self, key: str) -> bool:
        return key in self._records

    def get(self, key: str) -> dict[str, Any] | None:
        """The record, or None where this piece has yet to be done."""
        return self._records.get(key)

    def add(self, key: str, **fields: Any) -> dict[str, Any]:
        """Keep a finished piece; returns its record. DataError where it cannot be written."""
        record = {"key": key, **fields}
        if self.path is not None:
            _append(self.path, json.dumps(record))
        self._records[key] = record
        return record

    def results(
        self,
        pieces: Mapping[str, Piece],
        do: Callable[[list[Piece]], Iterable[Any]],
        name: str,
        failures: type | tuple[type, ...] = (),
    ) -> Iterator[tuple[str, Any]]:
        """(key, result) of each piece, in order, as soon as it and all before it are there.

        Args:
            pieces: what to do, by key; what earlier runs did is not done again.
            do: gives a result for each of the pieces that are left, in their order.
            name: the field of a record that keeps the result.
            failures: types of results that are passed on but not kept: the next run tries them again.
        """
        new = {key: piece for key, piece in pieces.items() if key not in self}
        done = iter(do(list(new.values())) if new else ())
        for key in pieces:
            if key in new:
                result = next(done)
                if isinstance(result, failures):
                    yield key, result
                    continue
                self.add(key, **{name: result})
            yield key, self._records[key].get(name)


def _append(path: Path, line: str) -> None:
    """Append at once, past any buffer: on a full disk (DataError) all lines before this one are there."""
    rest = memoryview((line + "\n").encode())
    try:
        with FileIO(path, "a") as file:
            while rest:
                rest = rest[file.write(rest) :]
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror}") from None


def read_work(path: Path) -> dict[str, dict[str, Any]]:
    """Records by key; nothing for a file that does not exist. A last line that was cut off while it was
    written is removed from the file, with a warning.

    Raises:
        DataError: a line is not one of a store's (the error names it), or the folder does not exist.
    """
    if not path.parent.is_dir():
        raise DataError(f"{path}: the folder {path.parent} does not exist; create it first")
    if not path.exists():
        return {}
    lines = read_bytes(path).splitlines(keepends=True)
    records: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(lines, 1):
        where = f"{path}, line {number}"
        if not line.strip():
            continue
        try:
            record = parse_json(line, dict[str, Any], where)
        except DataError as error:
            if number == len(lines) and (line.startswith(_START) or _START.startswith(line)):
                logger.warning("%s: cut off while it was written; dropped, and will be done again", where)
                os.truncate(path, sum(map(len, lines[:-1])))
                break
            raise DataError(f"{error}; repair or remove the line, or name another file") from None
        if not isinstance(record.get("key"), str):
            raise DataError(f"{where}: the field 'key' must be a text; remove this line")
        records[record["key"]] = record
        if not line.endswith(b"\n"):
            _append(path, "")
    return records
