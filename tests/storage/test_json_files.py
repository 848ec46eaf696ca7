from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import json_files
from storage.errors import DataError
from storage.json_files import BadRecords, atomic_text, field, load_json, stream_object

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(
    document=st.dictionaries(st.text(), VALUES, max_size=5),
    indent=st.sampled_from([None, 4]),
    chunk=st.integers(1, 9),
)
def test_streaming_gives_what_parsing_at_once_gives(
    tmp_path_factory: pytest.TempPathFactory, document: dict[str, object], indent: int | None, chunk: int
) -> None:
    path = tmp_path_factory.mktemp("json") / "file.json"
    path.write_text(json.dumps(document, indent=indent), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_files, "_CHUNK", chunk)
        assert list(stream_object(path)) == list(document.items())


@pytest.mark.parametrize("text", ["", "[1]", '{"a": 1', '{"a" 1}', '{"a": 1 "b": 2}', "{1: 2}", '{"a": }'])
def test_streaming_names_a_file_that_is_no_object(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(DataError, match=r"broken\.json: not one complete JSON object"):
        list(stream_object(path))


def test_broken_json_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text('{"a": 1,\n "b": }')
    with pytest.raises(DataError, match=r"broken\.json: not JSON \(line 2, column"):
        load_json(path)


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "marked.json"
    path.write_bytes(b"\xef\xbb\xbf" + b'{"a": 1}')
    assert load_json(path) == {"a": 1}
    assert list(stream_object(path)) == [("a", 1)]


@pytest.mark.parametrize("read", [load_json, lambda path: list(stream_object(path))])
def test_missing_and_binary_files_are_told(tmp_path: Path, read: object) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b'{"\xff\xfe": 1}')
    with pytest.raises(DataError, match="UTF-8"):
        read(binary)  # type: ignore[operator]
    with pytest.raises(DataError, match="cannot be read"):
        read(tmp_path / "absent")  # type: ignore[operator]


def test_field_tells_place_name_and_what_was_found() -> None:
    assert field({"a": "x"}, "a", str, "here") == "x"
    with pytest.raises(DataError, match=r"here: the field 'b' \(a string\) is missing"):
        field({"a": "x"}, "b", str, "here")
    with pytest.raises(DataError, match="here: the field 'a' must be a whole number, found str 'x'"):
        field({"a": "x"}, "a", int, "here")
    with pytest.raises(DataError, match="found bool True"):
        field({"a": True}, "a", int, "here")
    with pytest.raises(DataError, match="expected an object with the field 'a', found list"):
        field([], "a", int, "here")


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


def test_skipped_records_are_counted_and_the_first_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    bad = BadRecords("file", skip_bad=True)
    for name in ("one", "two"):
        bad.reject(DataError(name))
    bad.report()
    assert "file: skipped 2 bad record(s); the first: one" in caplog.text
    with pytest.raises(DataError, match="one"):
        BadRecords("file", skip_bad=False).reject(DataError("one"))
