"""Files of the consistency protocol: continuations from any source, and texts before prompts."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interventune.evaluation.protocols.consistency import specifications as texts_of
from interventune.evaluation.protocols.consistency.rows import read_rows
from interventune.metrics.consistency import DOMAINS, VARIANTS
from interventune.storage.documents import DataError
from tests.evaluation.protocol_cases import write_rows

EVERY: list[dict[str, Any]] = [
    {"domain": domain, "specification": variant, "prompt": f"{domain} {n}", "text": "x"}
    for domain in DOMAINS
    for variant in VARIANTS
    for n in range(2)
]


def test_read_rows_orders_those_of_folders_and_tells_groups_apart(tmp_path: Path) -> None:
    name_of = {"specification": "variant", "text": "continuation"}
    renamed = [{name_of.get(key, key): value for key, value in row.items()} for row in EVERY]
    write_rows(tmp_path / "examples.jsonl", renamed[::-1])
    named = [row | {"checkpoint": "a", "method": method} for row in EVERY for method in ("m", "n")]
    nonsense = [row for row in EVERY if row["specification"] == "nonsense"]
    groups = [row | {"group": group} for row in nonsense for group in (1, "2")]
    write_rows(tmp_path / "rows.jsonl", [*named, *EVERY, *groups])
    read = read_rows({"b": f"{tmp_path}/rows.jsonl", "folder": str(tmp_path)})
    assert {name: len(rows) for name, rows in read.items()} == {"a": 40, "b": 20 + 8, "folder": 20}
    assert {row["group"] for row in read["b"]} == {"", "1", "2"}
    assert {row["method"] for row in read["folder"]} == {"given"}
    assert [row["variant"] for row in read["folder"][:10:2]] == list(VARIANTS)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{key: value for key, value in EVERY[0].items() if key != "text"}], "line 1.*'text'"),
        ([*EVERY, EVERY[3]], "line 21: continues the same prompt as .*line 4"),
        (EVERY[:-2], "rows given has no continuations of neutral prompts with .* 'blank'"),
    ],
)
def test_read_rows_names_the_mistake(tmp_path: Path, rows: Any, message: str) -> None:
    write_rows(tmp_path / "rows.jsonl", rows)
    with pytest.raises(DataError, match=rf"rows\.jsonl.*{message}"):
        read_rows({"rows": f"{tmp_path}/rows.jsonl"})


@given(st.integers(0, 10**9), st.integers(1, 8))
def test_nonsense_group_depends_on_its_seed(seed: int, count: int) -> None:
    texts = texts_of.nonsense_group(seed, count)
    assert texts == texts_of.nonsense_group(seed, count) != texts_of.nonsense_group(seed + 1, count)
    assert len(texts) == count
    assert all(15 <= len(text) <= 45 and set(text) <= {*texts_of.ALPHABET, " "} for text in texts)


def test_own_specifications_have_as_many_texts_of_nonsense() -> None:
    default, original, _, *nonsense, blank = texts_of.parts_of("self", texts_of.OWN, 5)
    assert default.texts == ()
    assert blank.texts == (" ",)  # not empty, which would be the default
    assert [part.group for part in nonsense] == [*range(5)]
    assert all(len(part.texts) == len(original.texts) for part in nonsense)
