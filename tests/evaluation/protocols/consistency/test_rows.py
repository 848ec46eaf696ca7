"""Continuations written by anybody, as JSON Lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evaluation.protocols.consistency.rows import read_rows
from metrics.consistency import DOMAINS, VARIANTS
from storage.errors import DataError

EVERY: list[dict[str, Any]] = [
    {"domain": domain, "specification": variant, "prompt": f"{domain} {n}", "text": "x"}
    for domain in DOMAINS
    for variant in VARIANTS
    for n in range(2)
]


def write_rows(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_read_rows_takes_both_names_of_fields_and_folders(tmp_path: Path) -> None:
    renamed = [{**row, "variant": row["specification"], "continuation": row["text"]} for row in EVERY]
    for row in renamed:
        del row["specification"], row["text"]
    write_rows(tmp_path / "examples.jsonl", renamed[::-1])
    found = read_rows({"mine": write_rows(tmp_path / "rows.jsonl", EVERY), "folder": str(tmp_path)})
    assert list(found) == ["mine", "folder"]
    assert sorted(map(str, found["mine"])) == sorted(map(str, found["folder"]))
    assert {row["method"] for row in found["mine"]} == {"given"}
    assert [row["variant"] for row in found["folder"][:10:2]] == list(VARIANTS)  # in the order of tables


def test_read_rows_tells_systems_and_groups_apart(tmp_path: Path) -> None:
    named = [row | {"checkpoint": "a", "method": method} for row in EVERY for method in ("m", "n")]
    groups = [
        row | {"group": group} for row in EVERY if row["specification"] == "nonsense" for group in (1, "2")
    ]
    path = write_rows(tmp_path / "rows.jsonl", [*named, *EVERY, *groups])
    found = read_rows({"b": path})
    assert {name: len(rows) for name, rows in found.items()} == {"a": 2 * len(EVERY), "b": len(EVERY) + 8}
    assert {row["group"] for row in found["b"]} == {"", "1", "2"}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([EVERY[0] | {"domain": "nasty"}], "line 1.*domain"),
        ([EVERY[0] | {"scores": {"toxicity": 2}}], "line 1.*toxicity"),
        ([{key: value for key, value in EVERY[0].items() if key != "text"}], "line 1.*'text'"),
        ([*EVERY, EVERY[3]], "line 21: continues the same prompt as .*line 4"),
        (EVERY[:-2], "rows given has no continuations of neutral prompts with the specification 'blank'"),
    ],
)
def test_read_rows_names_the_mistake(tmp_path: Path, rows: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(DataError, match=rf"rows\.jsonl.*{message}"):
        read_rows({"rows": write_rows(tmp_path / "rows.jsonl", rows)})
