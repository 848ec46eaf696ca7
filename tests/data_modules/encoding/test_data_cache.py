"""Entries are made once, found again, and taken for nothing unless they are whole."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from data_modules.encoding.data_cache import (
    MARKER,
    DataCache,
    NotPreparedError,
    code_digest,
    key_of,
    read_entry,
    source_digest,
)
from storage.errors import DataError

REPOSITORY = Path(__file__).resolve().parents[3]


class Maker:
    """Counts how often it is asked."""

    def __init__(self, **about: Any) -> None:
        self.about, self.times = about, 0

    def __call__(self, folder: Path) -> Mapping[str, Any]:
        self.times += 1
        (folder / "rows.arrow").write_bytes(b"abc" * 100)
        logging.getLogger("data_modules.test").warning("skipped 2 records")
        return self.about


def test_made_once_and_found_again(tmp_path: Path) -> None:
    make = Maker(names=["x"])
    first = DataCache(tmp_path / "a" / "b", makes=True).get("rows", {"limit": 3}, make)
    again = DataCache(tmp_path / "a" / "b", makes=True).get("rows", {"limit": 3}, make)
    opened = DataCache(tmp_path / "a" / "b", makes=False).get("rows", {"limit": 3}, make)
    assert make.times == 1
    assert first == again == opened
    assert first.about["names"] == ["x"]
    assert [file.name for file in first.files("rows")] == ["rows.arrow"]
    assert {path.name for path in first.folder.iterdir()} == {"rows.arrow", MARKER}


def test_another_kind_or_option_is_another_entry(tmp_path: Path) -> None:
    make, cache = Maker(), DataCache(tmp_path, makes=True)
    for kind, limit in (("rows", 3), ("rows", 4), ("others", 3)):
        cache.get(kind, {"limit": limit}, make)
    assert make.times == 3


def test_code_and_libraries_are_part_of_every_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = key_of("rows", {})
    monkeypatch.setattr("data_modules.encoding.data_cache.version", lambda name: "0.0")
    code_digest.cache_clear()
    try:
        assert key_of("rows", {}) != before
    finally:
        code_digest.cache_clear()


def test_who_only_opens_makes_nothing(tmp_path: Path) -> None:
    make = Maker()
    with pytest.raises(NotPreparedError):
        DataCache(tmp_path / "new", makes=False).get("rows", {}, make)
    assert make.times == 0
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("damage", ["cut", "flipped", "no marker", "half a marker", "missing file"])
def test_what_is_damaged_is_made_anew(damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make, cache = Maker(), DataCache(tmp_path, makes=True)
    entry = cache.get("rows", {}, make)
    file, marker = entry.folder / "rows.arrow", entry.folder / MARKER
    if damage == "cut":
        os.truncate(file, 10)
    elif damage == "flipped":
        file.write_bytes(b"abd" + file.read_bytes()[3:])
    elif damage == "no marker":
        marker.unlink()
    elif damage == "half a marker":
        os.truncate(marker, marker.stat().st_size // 2)
    else:
        file.unlink()
    if damage != "flipped":  # checksums are looked at by the one process that makes entries
        with pytest.raises(NotPreparedError):
            DataCache(tmp_path, makes=False).get("rows", {}, make)
    caplog.clear()
    again = cache.get("rows", {}, make)
    assert make.times == 2
    assert again.digest == entry.digest
    assert sum("made anew" in message for message in caplog.messages) == 1


def test_an_error_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail(folder: Path) -> Mapping[str, Any]:
        (folder / "rows.arrow").write_bytes(b"half")
        raise DataError("line 7")

    with pytest.raises(DataError, match="line 7"):
        DataCache(tmp_path, makes=True).get("rows", {}, fail)
    assert not [path for path in tmp_path.iterdir() if path.suffix != ".lock"]
    make = Maker()
    DataCache(tmp_path, makes=True).get("rows", {}, make)
    assert make.times == 1


def test_killed_in_the_middle_leaves_nothing_that_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code = (
        "import sys, time; from pathlib import Path; from data_modules.encoding.data_cache import DataCache\n"
        "def make(folder):\n"
        "    (folder / 'rows.arrow').write_bytes(b'half'); print('now', flush=True); time.sleep(60)\n"
        f"DataCache({str(tmp_path)!r}, makes=True).get('rows', {{}}, make)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=REPOSITORY, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"now\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    make = Maker()
    with pytest.raises(NotPreparedError):
        DataCache(tmp_path, makes=False).get("rows", {}, make)
    DataCache(tmp_path, makes=True).get("rows", {}, make)
    assert make.times == 1
    assert not list(tmp_path.glob("*.tmp"))
    assert not list(tmp_path.glob(".*.tmp"))
    assert "made anew" not in caplog.text


def test_two_at_once_make_it_once(tmp_path: Path) -> None:
    made: list[int] = []

    def make(folder: Path) -> Mapping[str, Any]:
        made.append(1)
        time.sleep(0.2)
        (folder / "rows.arrow").write_bytes(b"abc")
        return {}

    with ThreadPoolExecutor(4) as pool:  # a lock of the file system holds between threads and processes alike
        caches = [DataCache(tmp_path, makes=True) for _ in range(4)]
        entries = list(pool.map(lambda cache: cache.get("rows", {}, make), caches))
    assert len(made) == 1
    assert len({entry.digest for entry in entries}) == 1


def test_what_was_said_is_said_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    DataCache(tmp_path, makes=True).get("rows", {}, Maker())
    caplog.clear()
    DataCache(tmp_path, makes=True).get("rows", {}, Maker())
    assert caplog.messages == ["skipped 2 records"]
    caplog.clear()
    DataCache(tmp_path, makes=False).get("rows", {}, Maker())
    assert caplog.messages == []


def test_an_unfinished_entry_is_opened_and_made_anew_next_time(tmp_path: Path) -> None:
    make = Maker(unfinished=True)
    DataCache(tmp_path, makes=True).get("rows", {}, make)
    DataCache(tmp_path, makes=False).get("rows", {}, make)
    assert make.times == 1
    DataCache(tmp_path, makes=True).get("rows", {}, make)
    assert make.times == 2


def test_a_place_that_cannot_be_written_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    cache, make = DataCache(tmp_path / "file" / "cache", makes=True), Maker()
    for _ in range(2):
        with pytest.raises(NotPreparedError):
            cache.get("rows", {}, make)
    assert make.times == 0
    assert sum("cannot be written" in message for message in caplog.messages) == 1


def test_a_full_disk_leaves_nothing_behind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("data_modules.encoding.data_cache.sync", full)
    with pytest.raises(NotPreparedError):
        DataCache(tmp_path, makes=True).get("rows", {}, Maker())
    assert "No space left on device" in caplog.text
    assert not [path for path in tmp_path.iterdir() if path.suffix != ".lock"]


def test_a_marker_that_is_no_object_counts_as_none(tmp_path: Path) -> None:
    for text in ("[]", "{}", '{"files": 3, "about": {}}', '{"files": {"a": 1}, "about": {}}', "\0"):
        (tmp_path / MARKER).write_text(text)
        assert read_entry(tmp_path) is None


def test_a_source_is_told_by_its_content(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text("{}")
    first = source_digest(str(file))
    os.utime(file, (0, 0))
    assert source_digest(str(file)) == first
    stat = file.stat()
    file.write_text("[]")  # the same size and time
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert source_digest(str(file)) != first
    folder = source_digest(str(tmp_path))
    assert source_digest(f"{tmp_path}:train") == folder
    file.rename(tmp_path / "b.json")
    assert source_digest(str(tmp_path)) != folder
    assert source_digest("stories:train") == ""
    with pytest.raises(DataError, match="no such file"):
        source_digest(str(tmp_path / "c.json"))


def test_a_dataset_of_the_hub_is_told_by_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    state = SimpleNamespace(_fingerprint="one")
    monkeypatch.setattr("data_modules.sources.table_rows", lambda name: state)
    first = source_digest("hub:owner/name:train")
    state._fingerprint = "two"
    assert first == "one" != source_digest("hub:owner/name:train")
