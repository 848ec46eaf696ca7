"""Finished pieces of long work, stored in a JSONL file: an interrupted run resumes and repeats
nothing.

    work = FinishedWork(Path("consistency.work.jsonl"))
    key = work_key(model=model.name, settings=model.settings, prompt=prompt)
    if key not in work:
        work.keep(key, generate(prompt))

One line per piece, `{"key": ..., "answer": ...}`, is appended as soon as it is done, so that a kill
loses only the piece in progress. Floats are restored exactly.
"""

import json
import logging
import os
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from .documents import DataError, Values, check, read_bytes, text_digest

logger = logging.getLogger(__name__)

_START = b'{"key": '
"""The start of every line: a partial line that begins differently is not removed."""


class _Piece(TypedDict):
    key: str
    answer: Any


def work_key(**parts: Any) -> str:
    """Return a sha256 of everything that a piece of work depends on (plain JSON values), in any
    order.
    """
    return text_digest(json.dumps(parts, sort_keys=True))


class FinishedWork(Values):
    """Answers (plain JSON) by key. An incomplete last line of the file is removed, with a warning.

    Args:
        path: the JSONL file, created with the first piece; None stores answers in memory only.

    Raises:
        DataError: a line has another form (the error names it), or the file cannot be read or
            written.
    """

    def __init__(self, path: Path | None) -> None:
        super().__init__()
        self.path = path
        self.asked = set[str]()
        self.new = set[str]()
        """Keys of finished pieces that were asked for, and of those finished by this process."""
        lines = read_bytes(path).splitlines(keepends=True) if path and path.exists() else []
        for number, line in enumerate(lines, 1):
            where = f"{path}, line {number}"
            try:
                piece = check(line, _Piece, where)
            except DataError as error:
                begun = line.startswith(_START) or _START.startswith(line)
                if path and begun and not line.endswith(b"\n"):
                    logger.warning("%s: is incomplete, and will be done again", where)
                    os.truncate(path, path.stat().st_size - len(line))
                    return
                raise DataError(
                    f"{error}; repair or remove the line, or name another file"
                ) from None
            self[piece["key"]] = piece["answer"]
        if lines and not lines[-1].endswith(b"\n"):
            self._append("\n")

    def keep(self, key: str, answer: Any) -> None:
        """Store a finished piece; DataError if it cannot be written."""
        self._append(json.dumps({"key": key, "answer": answer}) + "\n")
        self[key] = answer
        self.new.add(key)

    def _append(self, text: str) -> None:
        """Write at once: on a full disk (DataError) all lines before this one are there."""
        if self.path is None:
            return
        try:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise DataError(f"{self.path}: cannot be written: {error.strerror}") from None
