"""Files are written whole or not at all; a file of another kind costs one line; finished work."""

import json
import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import TypedDict

from interventune.storage import documents
from interventune.storage.documents import DataError, atomic_text, json_lines, load_json, read_bytes
from interventune.storage.finished_work import FinishedWork

READERS: dict[str, Callable[[Path], object]] = {"bytes": read_bytes, "JSON": load_json}
READERS |= {"lines": lambda x: [*json_lines(x)], "object": lambda x: [*documents.stream_object(x)]}
NO_OBJECTS = ["", '{"a": 1', '{"a" 1}', '{"a": 1 "b": 2}', "{1: 2}", '{"a": }', '{"a": 1} x']


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text("old")
    with pytest.raises(TypeError), atomic_text(path) as file:
        file.writelines(["half", 2])  # type: ignore[list-item]
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    with atomic_text(path) as file:
        file.write("new")
    assert path.read_text() == "new"
    with pytest.raises(DataError, match="does not exist"), atomic_text(tmp_path / "no" / "file"):
        pass


def test_a_folder_takes_the_place_of_an_older_one_whole_or_not_at_all(tmp_path: Path) -> None:
    def write(name: str, *, fail: bool) -> None:
        with documents.atomic(tmp_path / "report") as folder:
            folder.mkdir()
            (folder / name).write_text(name)
            if fail:
                raise KeyError

    for name, fail, left in (("a", False, "a"), ("b", True, "a"), ("c", False, "c")):
        with pytest.raises(KeyError) if fail else nullcontext():
            write(name, fail=fail)
        assert [path.name for path in tmp_path.rglob("*")] == ["report", left]


@pytest.mark.parametrize("reader", READERS)
def test_only_files_are_read(reader: str, tmp_path: Path) -> None:
    """Nobody writes into the pipe: to open it would wait for ever."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    kinds = {tmp_path / "pipe": "pipe", tmp_path / "link": "pipe", tmp_path: "folder"}
    for path, kind in (kinds | {Path("/dev/zero"): "pipe, device or socket"}).items():
        with pytest.raises(DataError, match=f"{path}: is a {kind}"):
            READERS[reader](path)


NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
DOCUMENTS = st.dictionaries(st.text(), VALUES, max_size=5)


@given(DOCUMENTS, st.sampled_from([None, 4]), st.sampled_from(["", "\ufeff"]))
def test_streaming_gives_what_parsing_at_once_gives(
    tmp_path_factory: pytest.TempPathFactory, document: Any, indent: int | None, mark: str
) -> None:
    path = tmp_path_factory.mktemp("json") / "file.json"
    path.write_text(mark + json.dumps(document, indent=indent), encoding="utf-8")
    assert [*documents.stream_object(path)] == [*document.items()] == [*load_json(path).items()]
    assert indent or [row for _, row in json_lines(path)] == [document]


@pytest.mark.parametrize("text", NO_OBJECTS)
def test_streaming_names_a_file_that_is_no_object(tmp_path: Path, text: str) -> None:
    (tmp_path / "broken.json").write_text(text)
    with pytest.raises(DataError, match=r"broken\.json: .*JSON object"):
        list(documents.stream_object(tmp_path / "broken.json"))


class Row(TypedDict):
    name: str
    spans: list[tuple[int, int]]


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({"spans": []}, "name"),
        ({"name": "n", "spans": [[0, 1], [0, True]]}, r"spans\[1\]\[1\]"),
        ({"name": "n", "spans": [[0]]}, r"spans\[0\]\[1\]"),
    ],
)
def test_the_type_is_the_check(row: dict[str, Any], field: str) -> None:
    read = documents.check(b'{"name": "n", "spans": [[0, 1]]}', Row, "a.json")
    assert read == {"name": "n", "spans": [(0, 1)]}
    with pytest.raises(DataError, match=rf"^a.json: the field '{field}'[^\n]*\Z"):
        documents.check(json.dumps(row).encode(), Row, "a.json")


def test_lines_have_places_and_go_on_after_an_error(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("[1]\n\n[\n[2]\n")
    rows = json_lines(path)
    assert next(rows) == (f"{path}, line 1", [1])
    with pytest.raises(DataError, match=rf"^{path}, line 3: not JSON"):
        next(rows)
    assert next(rows) == (f"{path}, line 4", [2])


def test_a_piece_is_in_the_file_before_the_next_is_begun(tmp_path: Path) -> None:
    path = tmp_path / "work.jsonl"
    work, memory = FinishedWork(path), FinishedWork(None)
    assert not path.exists()
    for i, value in enumerate((0.1, 1 / 3, -2.5e-310)):
        for store in (work, memory):
            store.keep(str(i), [value, "ä\u2028"])
        assert len(path.read_text().split("\n")) == i + 2
    assert FinishedWork(path) == work == memory


@given(st.lists(st.text(max_size=4), max_size=5), st.integers(0, 200))
def test_whatever_byte_a_kill_leaves_the_rest_is_whole(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], cut: int
) -> None:
    path = tmp_path_factory.mktemp("work") / "work.jsonl"
    work = FinishedWork(path)
    for i, text in enumerate(texts):
        work.keep(str(i), text)
    if path.exists():
        path.write_bytes(path.read_bytes()[: max(0, path.stat().st_size - cut)])
    left = FinishedWork(path)
    assert [*left.items()] == [*work.items()][: len(left)]
    for key in work.keys() - left.keys():
        left.keep(key, work[key])
    assert FinishedWork(path) == work


@pytest.mark.parametrize("text", ["no store", '[1]\n{"key": "a", "answer": 1}', '{"key": 3}', "{}"])
def test_a_file_that_is_no_store_is_told_and_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file"
    path.write_text(text := f"{text}\n")
    with pytest.raises(DataError, match="line 1"):
        FinishedWork(path)
    assert path.read_text() == text
