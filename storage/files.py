"""Files whole: read at once, written under a temporary name and renamed, known by their digest. What is no
ordinary file is refused, not waited for."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from storage.errors import DataError

MARKS = {b"\x1f\x8b": "compressed by gzip", b"PK\x03\x04": "a zip archive"}
MARKS |= {b"\xff\xfe": "text in UTF-16", b"\xfe\xff": "text in UTF-16"}
"""How files begin that cannot be read as they are."""
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of writing that do not name the file."""


@contextmanager
def atomic(path: str | Path) -> Iterator[Path]:
    """A temporary path beside `path` for the block to write a file or a folder at, which then takes its name.

    After an error, or a kill, whatever stood at `path` before is still there. The folder around must exist.

    Raises:
        DataError: the place cannot be written, or the disk is full.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise DataError(f"{path}: the folder {path.parent} does not exist; create it first")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    older = path.with_name(f".{path.name}.{os.getpid()}.old")
    try:
        yield temporary
        for part in (*temporary.rglob("*"), temporary):
            sync(part)
        if temporary.is_dir() and path.exists():
            path.rename(older)
        temporary.replace(path)
        with suppress(OSError):  # some network file systems cannot
            sync(path.parent)
    except OSError as error:
        own_file = str(error.filename).startswith(str(temporary))
        if not own_file and (error.filename is not None or error.errno not in _DISK_FULL):
            raise
        raise DataError(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        if older.exists() and not path.exists():
            older.rename(path)
        for leftover in (temporary, older):
            if leftover.is_dir():
                shutil.rmtree(leftover, ignore_errors=True)
            with suppress(OSError):  # a read-only folder says so even where there is no such file
                leftover.unlink(missing_ok=True)


@contextmanager
def atomic_text(path: str | Path) -> Iterator[TextIO]:
    """`atomic`, with the file open for text."""
    with atomic(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        yield file


def write_text(path: Path, text: str) -> None:
    """Write a whole file, or none; makes its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_text(path) as file:
        file.write(text)


def refuse_existing(*paths: Path | None, overwrite: bool) -> None:
    """DataError for the first of the paths that is there, unless it may be replaced."""
    for path in paths:
        if path is not None and path.exists() and not overwrite:
            raise DataError(f"{path}: already exists; choose another name or add --overwrite")


def sync(path: Path) -> None:
    """fsync a file or directory."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def open_file(path: str | Path) -> Iterator[BinaryIO]:
    """An ordinary file, open for reading bytes.

    Raises:
        DataError: it is not there, cannot be read, or is a folder, a pipe or a device.
    """
    try:
        require_file(path)
        with open(path, "rb") as file:
            head = file.read(4)
            for mark, kind in MARKS.items():
                if head.startswith(mark):
                    raise DataError(f"{path}: is {kind}; make it a plain file in UTF-8")
            file.seek(0)
            yield file
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None


def require_file(path: str | Path) -> None:
    """Raise DataError for a folder, a pipe or a device, whose end may never come, and OSError where nothing
    is."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        found = "folder" if stat.S_ISDIR(mode) else "pipe" if stat.S_ISFIFO(mode) else "device or socket"
        raise DataError(f"{path}: is a {found}; name a file")


def read_bytes(path: str | Path) -> bytes:
    """The file's bytes; DataError as in `open_file`."""
    with open_file(path) as file:
        return file.read()


def read_text(path: str | Path) -> str:
    """The file's text; DataError for one that cannot be read or is not UTF-8."""
    try:
        return read_bytes(path).decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise DataError(f"{path}: not a text file in UTF-8") from None


def read_archive(path: str | Path, *, mmap: bool = False) -> Any:
    """What `torch.save` wrote: tensors (left on disk with `mmap`) and plain values; nothing in it is run.

    Raises:
        DataError: the file is not there, is damaged, or holds other objects.
    """
    import torch

    if not Path(path).exists():
        raise DataError(f"{path}: no such file")
    require_file(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except Exception as error:  # a dozen types, of which some advise to run what the file says
        raise DataError(
            f"{path}: no readable checkpoint: damaged, or more than tensors and plain values "
            f"({type(error).__name__})"
        ) from error


def file_digest(path: str | Path) -> str:
    """sha256 of a file's content."""
    require_file(path)
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
