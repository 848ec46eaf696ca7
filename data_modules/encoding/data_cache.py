"""A folder of prepared data: each entry is made once, by one process, and found again by what it depends on.

    entry = DataCache("cache/data", makes=True).get("questions", depends, make)

An entry is a folder of files with a marker, written last, that tells their sizes and checksums; it is made
under a temporary name and renamed. What was cut off, or has other checksums by now, is made anew. Nothing
that is whole is ever removed: delete the folder, at any time, to get its room back.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from storage.errors import DataError
from storage.files import sync

log = logging.getLogger(__name__)

MARKER = "complete.json"

_PACKAGES = ("tokenizers", "transformers", "sentencex", "datasets")
"""Whose versions decide what text becomes."""


class NotPreparedError(Exception):
    """There is no such entry, and none can be made here."""


@dataclass(frozen=True)
class Entry:
    """A whole entry."""

    folder: Path
    digest: str
    """Of what its files hold: for entries that are made of it."""
    about: Mapping[str, Any]
    """What its maker told about it."""

    def files(self, stem: str) -> tuple[Path, ...]:
        """Its Arrow files whose names begin with `stem`, in order."""
        return tuple(sorted(self.folder.glob(f"{stem}*.arrow")))


class DataCache:
    """Entries in a folder.

    Args:
        folder: where they are; made with the first entry.
        makes: make what is missing and look at every checksum. Otherwise entries are only opened.
    """

    def __init__(self, folder: str | Path, *, makes: bool) -> None:
        self.folder, self.makes = Path(folder), makes
        self._writable = True

    def get(self, kind: str, depends: Mapping[str, Any], make: Callable[[Path], Mapping[str, Any]]) -> Entry:
        """The entry of a kind that depends on `depends` (JSON) and on the code of this room.

        Args:
            kind: begins the entry's name.
            depends: everything that the content follows from.
            make: writes Arrow files into the folder it is given and returns `about` (JSON). With
                `"unfinished": true` in it the entry is made anew the next time.

        Raises:
            NotPreparedError: it is missing and is not to be made, or the folder cannot be written.
        """
        path = self.folder / f"{kind}-{key_of(kind, depends)}"
        if not self.makes:
            entry = read_entry(path)
            if entry is None:
                raise NotPreparedError(path)
            return entry
        if not self._writable:
            raise NotPreparedError(path)
        from filelock import FileLock

        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with FileLock(self.folder / f".{path.name}.lock"):
                entry = self._whole(path)
                if entry is None or entry.about.get("unfinished"):
                    self._make(path, make)
                else:
                    _repeat(entry.about["said"])
        except OSError as error:
            log.warning(
                "%s: cannot be written (%s); every process prepares the data for itself", self.folder, error
            )
            self._writable = False
            raise NotPreparedError(path) from error
        made = read_entry(path)
        if made is None:
            raise NotPreparedError(path)
        return made

    def _whole(self, path: Path) -> Entry | None:
        if not path.exists():
            return None
        entry = read_entry(path, checksums=True)
        if entry is None:
            log.warning("%s: incomplete or damaged; it is made anew", path)
            shutil.rmtree(path)
        return entry

    def _make(self, path: Path, make: Callable[[Path], Mapping[str, Any]]) -> None:
        temporary = path.with_name(f".{path.name}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)  # of a process that died: we hold its lock
        temporary.mkdir()
        try:
            with _remembered() as said:
                about = make(temporary)
            _seal(temporary, {**about, "said": said})
            shutil.rmtree(path, ignore_errors=True)  # an unfinished one
            temporary.replace(path)
            sync(path.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def read_entry(path: Path, *, checksums: bool = False) -> Entry | None:
    """The entry in a folder; None unless its marker is there and its files have the sizes (and the checksums)
    that the marker tells."""
    try:
        marker = json.loads((path / MARKER).read_bytes())
        files, about = dict(marker["files"]), dict(marker["about"])
        for name, (size, digest) in files.items():
            file = path / name
            if file.stat().st_size != size or (checksums and file_digest(file) != digest):
                return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    content = json.dumps([files, {k: v for k, v in about.items() if k != "said"}], sort_keys=True)
    return Entry(path, hashlib.sha256(content.encode()).hexdigest(), about)


def key_of(kind: str, depends: Mapping[str, Any]) -> str:
    """32 hexadecimal digits of SHA-256 over what an entry depends on, the code of this room included."""
    text = json.dumps([kind, depends, code_digest()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@cache
def code_digest() -> str:
    """SHA-256 of the code of this room and of the versions of the libraries that treat text: whoever changes
    a reader need not think of a version number."""
    digest = hashlib.sha256(json.dumps([[name, version(name)] for name in _PACKAGES]).encode())
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def source_digest(source: str) -> str:
    """What tells two states of a source apart: the content of a file, or of all files of a folder; of a
    dataset of the Hub, the library's own fingerprint. Empty for embedded data, whose code is in every key.

    Raises:
        DataError: the file is not there, or the dataset cannot be loaded.
    """
    if source.startswith("stories:"):
        return ""
    if source.startswith("hub:"):
        from data_modules.sources import table_rows

        rows = table_rows(source.removeprefix("hub:"))
        return str(getattr(rows, "_fingerprint", ""))
    path = Path(source)
    if ":" in source and not path.exists():
        path = Path(source.rpartition(":")[0])  # FOLDER:SPLIT
    try:
        if not path.is_dir():
            return file_digest(path)
        files = sorted(file for file in path.rglob("*") if file.is_file())
        return json.dumps([[str(file.relative_to(path)), file_digest(file)] for file in files])
    except FileNotFoundError:
        raise DataError(f"{source}: no such file (other sources begin with hub: or stories:)") from None
    except OSError as error:
        raise DataError(f"{source}: cannot be read: {error.strerror}") from None


def _seal(folder: Path, about: Mapping[str, Any]) -> None:
    """Sync all files and write the marker."""
    files = {}
    for file in sorted(folder.glob("*.arrow")):
        sync(file)
        files[file.name] = [file.stat().st_size, file_digest(file)]
    with open(folder / MARKER, "w", encoding="utf-8") as marker:
        json.dump({"files": files, "about": about}, marker)
        marker.flush()
        os.fsync(marker.fileno())
    sync(folder)


@contextmanager
def _remembered() -> Iterator[list[list[Any]]]:
    """What this room's loggers say meanwhile, such as how many questions were left out and why: who opens the
    entry later hears it, too."""
    said: list[list[Any]] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append([record.levelno, record.getMessage()])  # type: ignore[method-assign]
    room = logging.getLogger("data_modules")
    room.addHandler(handler)
    try:
        yield said
    finally:
        room.removeHandler(handler)


def _repeat(said: list[list[Any]]) -> None:
    for level, message in said:
        log.log(level, "%s", message)
