"""Parts of all records, and files of records: JSON Lines in the form of `dataclasses.asdict`.

All records are frozen; text offsets are character offsets into the unmodified context,
end-exclusive.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from interventune.storage.errors import DataError
from interventune.storage.files import atomic_text


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a context: `context[start:end] == text`."""

    start: int
    end: int
    text: str

    def check(self, context: str, question: str) -> None:
        """DataError, naming the question, unless the text is at this place in its context."""
        if context[self.start : self.end] != self.text or self.start < 0:
            raise DataError(f"question {question!r}: offset {self.start} cuts no {self.text!r}")

    @classmethod
    def locate(cls, text: str, context: str, where: str) -> "Span":
        """Return the first occurrence of `text` in `context`; errors begin with `where`."""
        start = context.find(text)
        if start < 0 or not text:
            raise DataError(f"{where}: {text!r} does not occur in the context {context!r}")
        return cls(start, start + len(text), text)


def write_records(records: Iterable[Any], path: str | Path) -> int:
    """Write a whole file or nothing; return the number of records."""
    number = 0
    with atomic_text(path) as file:
        for record in records:
            number += 1
            file.write(json.dumps(asdict(record), ensure_ascii=False) + "\n")
    return number
