"""Texts with the probability of each attribute, for training a scorer.

One JSON object a line: `{"text": "...", "toxicity": 0.9, "threat": 0, ...}`, or with the text and its labels
inside `prompt`, as RealToxicityPrompts has them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage.errors import DataError
from storage.json_files import field, json_lines

logger = logging.getLogger(__name__)

NESTED = "prompt"
"""The object that holds the text in RealToxicityPrompts."""


@dataclass(frozen=True)
class LabelledTexts:
    """Distinct texts and what is known about each."""

    texts: tuple[str, ...]
    labels: dict[str, tuple[float | None, ...]]
    """By attribute a number in [0, 1] for every text, None where a row does not say."""
    rows: int
    """How many rows they come from."""
    unlabelled: int
    """Rows left out, because they have no label at all."""


def read_labelled_texts(
    paths: Iterable[str | Path], fields: Mapping[str, tuple[str, ...]], *, text_field: str = "text"
) -> LabelledTexts:
    """The rows of all files. Rows with the same text become one, its labels the means of theirs.

    Args:
        paths: JSONL files.
        fields: by attribute the fields that may hold it; the first that a row has counts.
        text_field: the field with the text, in the row or inside its `prompt`.

    Raises:
        DataError: a file holds no row, or a row has no text, or a label that is no number from 0 to 1 (nor
            true, false or null).
    """
    known: dict[str, dict[str, list[float]]] = {}
    rows = unlabelled = 0
    for path in paths:
        before = rows
        for where, row in json_lines(path):
            rows += 1
            holder = _holder(row, text_field, where)
            text = field(holder, text_field, str, where)
            labels = {name: _label(row, holder, keys, where) for name, keys in fields.items()}
            if all(label is None for label in labels.values()):
                unlabelled += 1
                continue
            kept = known.setdefault(text, {name: [] for name in fields})
            for name, label in labels.items():
                if label is not None:
                    kept[name].append(label)
        if rows == before:
            raise DataError(
                f'{path}: holds no row; expected lines such as {{"text": "...", "toxicity": 0.9}}'
            )
    columns = {
        name: tuple(sum(kept[name]) / len(kept[name]) if kept[name] else None for kept in known.values())
        for name in fields
    }
    return LabelledTexts(tuple(known), columns, rows, unlabelled)


def _holder(row: Any, text_field: str, where: str) -> Any:
    """The object with the text: the row, or its `prompt`."""
    if isinstance(row, dict) and text_field not in row and isinstance(row.get(NESTED), dict):
        return row[NESTED]
    return row


def _label(row: dict[str, Any], holder: dict[str, Any], names: tuple[str, ...], where: str) -> float | None:
    for part in (row, holder):
        for name in names:
            if part.get(name) is None:
                continue
            value = part[name]
            if not isinstance(value, (bool, int, float)) or not 0 <= value <= 1:
                raise DataError(
                    f"{where}: the field {name!r} must be a number from 0 to 1, true or false, "
                    f"found {value!r:.60}"
                )
            return float(value)
    return None
