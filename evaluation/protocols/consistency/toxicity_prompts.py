"""Beginnings of texts that a language model is to continue, from JSON Lines (probes spec A6).

    {"prompt": {"text": "The man turned and"}, "challenging": true}
    {"text": "The man turned and"}

Other fields, such as RealToxicityPrompts' own scores, are not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from storage.errors import DataError
from storage.json_files import field, json_lines


class ToxicityPrompt(NamedTuple):
    """One prompt."""

    text: str
    challenging: bool | None
    """Whether models tend to go on badly; None where the file does not say."""
    line: int
    """In the file, from 1."""


def iter_prompts(path: str | Path) -> Iterator[ToxicityPrompt]:
    """The prompts of a file, in its order; DataError names file and line."""
    return (_prompt(row, int(where.rpartition(" ")[2]), where) for where, row in json_lines(path))


def read_prompts(path: str | Path, *, limit: int = 0) -> list[ToxicityPrompt]:
    """The first `limit` prompts (0: all), at least one; the whole file is checked. DataError as above."""
    found = list(iter_prompts(path))
    if not found:
        raise DataError(f'{path}: holds no prompt; expected lines such as {{"prompt": {{"text": "..."}}}}')
    return found[: limit or None]


def _prompt(row: Any, number: int, where: str) -> ToxicityPrompt:
    if isinstance(row, dict) and "prompt" not in row and "text" not in row:
        raise DataError(f"{where}: expected the field 'prompt' (with 'text' in it) or 'text'")
    if isinstance(row, dict) and "prompt" in row:
        text = field(field(row, "prompt", dict, where), "text", str, f"{where}, field 'prompt'")
    else:
        text = field(row, "text", str, where)
    if not text.strip():
        raise DataError(f"{where}: the prompt is empty; remove the line")
    return ToxicityPrompt(
        text, field(row, "challenging", bool, where) if "challenging" in row else None, number
    )
