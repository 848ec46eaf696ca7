from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import TypedDict

from storage.errors import DataError
from storage.json_files import json_lines, load_json, stream_object

LEAVES = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False)
VALUES = st.recursive(
    LEAVES.filter(lambda value: value not in (float("inf"), float("-inf"))) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


class Row(TypedDict):
    name: str
    kind: Literal["a", "b"]
    spans: list[tuple[int, int]]


GOOD = {"name": "n", "kind": "a", "spans": [[0, 1]]}


@given(document=st.dictionaries(st.text(), VALUES, max_size=5), indent=st.sampled_from([None, 4]))
def test_streaming_gives_what_parsing_at_once_gives(
    tmp_path_factory: pytest.TempPathFactory, document: dict[str, object], indent: int | None
) -> None:
    path = tmp_path_factory.mktemp("json") / "file.json"
    path.write_text(json.dumps(document, indent=indent), encoding="utf-8")
    assert list(stream_object(path)) == list(document.items()) == list(load_json(path).items())


@pytest.mark.parametrize(
    "text",
    ["", '{"a": 1', '{"a" 1}', '{"a": 1 "b": 2}', "{1: 2}", '{"a": }', '{"a": 1} x'],
)
def test_streaming_names_a_file_that_is_no_object(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(DataError, match=r"broken\.json: .*JSON object"):
        list(stream_object(path))


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "marked.json"
    path.write_bytes(b"\xef\xbb\xbf" + b'{"a": 1}')
    assert load_json(path) == {"a": 1}
    assert list(stream_object(path)) == [("a", 1)]
    assert [row for _, row in json_lines(path)] == [{"a": 1}]


@pytest.mark.parametrize(
    "read", [load_json, *(lambda p, f=f: list(f(p)) for f in (stream_object, json_lines))]
)
def test_missing_and_binary_files_are_told(tmp_path: Path, read: Any) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b'{"\xff\xfe": 1}')
    with pytest.raises(DataError, match="JSON"):
        read(binary)
    with pytest.raises(DataError, match="absent: cannot be read"):
        read(tmp_path / "absent")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": ...}, "name"),
        ({"spans": [[0, 1], [0, True]]}, r"spans\[1\]\[1\]"),
        ({"spans": [[0]]}, r"spans\[0\]\[1\]"),
    ],
)
def test_the_type_is_the_check(tmp_path: Path, change: dict[str, Any], field: str) -> None:
    row = {key: value for key, value in (GOOD | change).items() if value is not ...}
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(GOOD) + "\n\n" + json.dumps(row) + "\n")
    rows = json_lines(path, Row)
    assert next(rows) == (f"{path}, line 1", {"name": "n", "kind": "a", "spans": [(0, 1)]})
    with pytest.raises(DataError, match=rf"^{path}, line 3: the field '{field}'") as caught:
        next(rows)
    assert "\n" not in str(caught.value)
