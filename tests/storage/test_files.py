from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.errors import DataError
from storage.files import atomic, atomic_text, read_bytes, source_digest
from storage.json_files import json_lines, load_json, stream_object


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
    def write(name: str, *, fail: bool = False) -> None:
        with atomic(tmp_path / "report") as folder:
            folder.mkdir()
            (folder / name).write_text(name)
            if fail:
                raise KeyError

    for name, fail, left in (("a", False, "a"), ("b", True, "a"), ("c", False, "c")):
        if fail:
            with pytest.raises(KeyError):
                write(name, fail=True)
        else:
            write(name)
        assert [path.name for path in tmp_path.rglob("*")] == ["report", left]


READERS: dict[str, Callable[[Path], object]] = {
    "bytes": read_bytes,
    "JSON": load_json,
    "lines": lambda path: list(json_lines(path)),
    "object": lambda path: list(stream_object(path)),
}


@pytest.mark.parametrize("reader", READERS)
def test_only_files_are_read(reader: str, tmp_path: Path) -> None:
    """Nobody writes into the pipe: to open it would wait for ever."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for path, found in ((tmp_path / "pipe", "pipe"), (tmp_path / "link", "pipe"), (tmp_path, "folder")):
        with pytest.raises(DataError, match=f"{path}: is a {found}"):
            READERS[reader](path)
    with pytest.raises(DataError, match="/dev/zero: is a device"):
        READERS[reader](Path("/dev/zero"))


@pytest.mark.parametrize("source", ["a" * 300, "hub:" + "b/" * 3000, "c\0d", ""])
def test_a_text_of_any_length_is_no_file(source: str) -> None:
    assert source_digest(source) == ""
