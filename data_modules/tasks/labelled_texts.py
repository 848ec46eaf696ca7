"""Rows of a table as texts, or pairs of texts, with a label of 0 or 1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from data_modules.sources import labelled_rows
from storage.command_line import Count
from storage.errors import DataError

Part = Literal["both", "first", "second"]
TEXT_FIELDS = (
    ("premise", "hypothesis"),
    ("passage", "question"),
    ("sentence1", "sentence2"),
    ("text",),
    ("comment_text",),
)
"""Fields that hold the texts of a row, pairs first."""
_LABELS = {"0": 0, "1": 1, "false": 0, "true": 1}
_UNLABELLED = ("", "-", "-1", "none")


@dataclass(frozen=True, slots=True)
class LabelledText:
    """One text, or a pair, with its label."""

    id: str
    """For errors: which row it is."""
    text: str
    """The text; of a pair the premise or the passage."""
    second: str
    """The hypothesis or the question; "" of a single text."""
    label: int
    """h1: 1 or 0."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """All fields of its row, and the number of its `input`, for features of another kind."""

    def part(self, of: Part) -> str:
        """One of the texts; or both as a model reads them, with one line break between and none inside."""
        if of != "both":
            return self.text if of == "first" else self.second
        parts = (self.text, self.second) if self.second else (self.text,)
        return "\n".join(" ".join(line.strip() for line in part.splitlines()).strip() for part in parts)


@dataclass(frozen=True)
class Rows:
    """rows

    Args:
        label: field of the label; rows without one are left out.
        positive: labels that count as 1; all others are 0.
        threshold: labels of at least X count as 1.
        max_words: leave out longer texts.
        max_characters: likewise.
    """

    label: Annotated[str, "FIELD"] = "label"
    positive: list[Annotated[str, "VALUE"]] | None = None
    threshold: Annotated[float, "X"] | None = None
    max_words: Count = 1_000_000
    max_characters: Count = 1_000_000

    def read(self, sources: Sequence[str]) -> Iterator[LabelledText]:
        """The texts of tables; DataError names place and field."""
        for number, source in enumerate(sources, 1):
            for where, row in labelled_rows(source):
                names = next((names for names in TEXT_FIELDS if row.keys() >= {*names}), ())
                if not names or self.label not in row:
                    known = ", ".join(map(" and ".join, TEXT_FIELDS))
                    wanted = (
                        f"a label ({self.label}, unless --label names another field) and a text ({known})"
                    )
                    raise DataError(f"{where}: needs {wanted}, found {', '.join(row)}")
                label = self._label(str(row[self.label]).strip(), where)
                if label is None:
                    continue
                first, *second = (str(row[name]) for name in names)
                columns = {**row, "input": number}
                found = LabelledText(where, first, second[0] if second else "", label, columns)
                whole = found.part("both")
                if len(whole.split()) <= self.max_words and len(whole) <= self.max_characters:
                    yield found

    def _label(self, value: str, where: str) -> int | None:
        """0, 1, or None for a row without a label."""
        if value.lower() in _UNLABELLED:
            return None
        if self.positive:
            return int(value in self.positive)
        try:
            return _LABELS[value.lower()] if self.threshold is None else int(float(value) >= self.threshold)
        except (KeyError, ValueError):
            wanted = "0 or 1 (see --positive and --threshold)" if self.threshold is None else "a number"
            raise DataError(f"{where}: the label must be {wanted}, found {value!r}") from None
