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


def test_read_rows_orders_those_of_folders_and_tells_systems_and_groups_apart(tmp_path: Path) -> None:
    renamed = [{**row, "variant": row["specification"], "continuation": row["text"]} for row in EVERY]
    for row in renamed:
        del row["specification"], row["text"]
    write_rows(tmp_path / "examples.jsonl", renamed[::-1])
    named = [row | {"checkpoint": "a", "method": method} for row in EVERY for method in ("m", "n")]
    groups = [
        row | {"group": group} for row in EVERY if row["specification"] == "nonsense" for group in (1, "2")
    ]
    found = read_rows(
        {"b": write_rows(tmp_path / "rows.jsonl", [*named, *EVERY, *groups]), "folder": str(tmp_path)}
    )
    assert {name: len(rows) for name, rows in found.items()} == {"a": 40, "b": 20 + 8, "folder": 20}
    assert {row["group"] for row in found["b"]} == {"", "1", "2"}
    assert {row["method"] for row in found["folder"]} == {"given"}
    assert [row["variant"] for row in found["folder"][:10:2]] == list(VARIANTS)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{key: value for key, value in EVERY[0].items() if key != "text"}], "line 1.*'text'"),
        ([*EVERY, EVERY[3]], "line 21: continues the same prompt as .*line 4"),
        (EVERY[:-2], "rows given has no continuations of neutral prompts with the specification 'blank'"),
    ],
)
def test_read_rows_names_the_mistake(tmp_path: Path, rows: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(DataError, match=rf"rows\.jsonl.*{message}"):
        read_rows({"rows": write_rows(tmp_path / "rows.jsonl", rows)})
