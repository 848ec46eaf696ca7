"""Labelled texts: fields in the row or inside its prompt, equal texts as one, labels that may be missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from data_modules.tasks.labelled_texts import LabelledTexts, read_labelled_texts
from storage.errors import DataError

FIELDS = {"toxicity": ("toxicity", "toxic"), "threat": ("threat",)}


def read(folder: Path, *rows: Any, text_field: str = "text") -> LabelledTexts:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return read_labelled_texts([path], FIELDS, text_field=text_field)


def test_rows_of_both_forms(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        {"text": "a", "toxic": 1, "threat": 0.25},
        {"prompt": {"text": "b", "toxicity": 0.5, "threat": None}},
        {"prompt": {"text": "c"}, "toxicity": True},
        {"text": "d", "other": 1},
    )
    assert found == LabelledTexts(
        ("a", "b", "c"), {"toxicity": (1.0, 0.5, 1.0), "threat": (0.25, None, None)}, 4, 1
    )


def test_equal_texts_are_one_with_the_mean_of_their_labels(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        {"body": "a", "toxicity": 1},
        {"body": "a", "toxicity": 0.5},
        {"body": "a", "threat": 0},
        text_field="body",
    )
    assert found.texts == ("a",)
    assert found.labels == {"toxicity": (0.75,), "threat": (0.0,)}
    assert found.rows == 3


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"toxicity": 1}, "line 2: the field 'text'"),
        ({"text": "a", "toxicity": -0.1}, "line 2: the field 'toxicity'"),
    ],
)
def test_a_bad_row_is_named(row: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=told):
        read(tmp_path, {"text": "a", "threat": 0}, row)
