"""Texts with the probability of each attribute, for training a scorer.

One JSON object a line: `{"text": "...", "toxicity": 0.9, "threat": 0, ...}`, or with the text and its labels
inside `prompt`, as RealToxicityPrompts has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage.errors import DataError
from storage.json_files import field, json_lines

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
        fields: by attribute the fields that may hold it, in the row or inside its `prompt`; the first counts.
        text_field: the field with the text, in the row or inside its `prompt`.

    Raises:
        DataError: a file holds no row, or a row has no text, or a label that is no number from 0 to 1 (nor
            true, false or null).
    """
    labels_of: dict[str, dict[str, list[float]]] = {}
    rows = unlabelled = 0
    for path in paths:
        for where, row in json_lines(path, dict[str, Any], expected="a text and its labels"):
            rows += 1
            nested = row.get(NESTED)
            holder = nested if text_field not in row and isinstance(nested, dict) else row
            text = field(holder, text_field, str, where)
            labels = {name: _label(holder | row, names, where) for name, names in fields.items()}
            if all(label is None for label in labels.values()):
                unlabelled += 1
                continue
            known = labels_of.setdefault(text, {name: [] for name in fields})
            for name, label in labels.items():
                known[name] += [] if label is None else [label]
    columns = {
        name: tuple(
            sum(known[name]) / len(known[name]) if known[name] else None for known in labels_of.values()
        )
        for name in fields
    }
    return LabelledTexts(tuple(labels_of), columns, rows, unlabelled)


def _label(row: dict[str, Any], names: tuple[str, ...], where: str) -> float | None:
    for name in names:
        if row.get(name) is not None:
            label = field(row, name, bool | int | float, where)
            if not 0 <= label <= 1:
                raise DataError(f"{where}: the field {name!r} must lie between 0 and 1, found {label!r:.60}")
            return float(label)
    return None
