"""Beginnings of texts that a language model is to continue, from JSON Lines (probes spec A6).

    {"prompt": {"text": "The man turned and"}, "challenging": true}
    {"text": "The man turned and"}

Other fields, such as RealToxicityPrompts' own scores, are not read.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, NotRequired

from typing_extensions import TypedDict

from storage.errors import DataError
from storage.json_files import json_lines


class ToxicityPrompt(NamedTuple):
    """One prompt."""

    text: str
    challenging: bool | None
    """Whether models tend to go on badly; None where the file does not say."""
    line: int
    """In the file, from 1."""


class _Text(TypedDict):
    text: str


class _Row(TypedDict):
    prompt: NotRequired[_Text]
    text: NotRequired[str]
    challenging: NotRequired[bool]


def read_prompts(path: str | Path, *, limit: int = 0) -> list[ToxicityPrompt]:
    """The first `limit` prompts (0: all), at least one; all lines are checked. DataError names the line."""
    prompts = []
    for where, row in json_lines(path, _Row):
        text = row["prompt"]["text"] if "prompt" in row else row.get("text")
        if text is None:
            raise DataError(f"{where}: expected the field 'prompt' (with 'text' in it) or 'text'")
        if not text.strip():
            raise DataError(f"{where}: the prompt is empty; remove the line")
        prompts.append(ToxicityPrompt(text, row.get("challenging"), int(where.rpartition(" ")[2])))
    if not prompts:
        raise DataError(f'{path}: holds no prompt; expected lines such as {{"prompt": {{"text": "..."}}}}')
    return prompts[: limit or None]
