"""Files whole: read at once, written under a temporary name and renamed, known by their digest. What is no
ordinary file is refused, not waited for."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any, TextIO

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
    DataError: the place cannot be written, or the disk is full."""
    path = Path(path)
    if not path.parent.is_dir():
        raise DataError(f"{path}: the folder {path.parent} does not exist; create it first")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    older = temporary.with_suffix(".old")
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
        name = error.filename
        if str(name).startswith(str(temporary)) or (name is None and error.errno in _DISK_FULL):
            raise DataError(f"{path}: cannot be written: {error.strerror}") from error
        raise
    finally:
        if older.exists() and not path.exists():
            older.rename(path)
        for leftover in (temporary, older):
            shutil.rmtree(leftover, ignore_errors=True)
            with suppress(OSError):  # a read-only folder says so even where there is no such file
                leftover.unlink(missing_ok=True)


@contextmanager
def atomic_text(path: str | Path) -> Iterator[TextIO]:
    """`atomic`, with the file open for text."""
    with atomic(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        yield file


def sync(path: Path) -> None:
    """fsync a file or directory."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def open_file(path: str | Path, *, text: bool = True) -> Iterator[BufferedReader]:
    """An ordinary file, open for reading bytes; of a text without its byte order mark. DataError: it is not
    there, cannot be read, is a folder, or a pipe or a device, whose end may never come; or it is in another
    form than a text in UTF-8."""
    try:
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode):
            found = "folder" if stat.S_ISDIR(mode) else "pipe" if stat.S_ISFIFO(mode) else "device or socket"
            raise DataError(f"{path}: is a {found}; name a file")
        with open(path, "rb") as file:
            head = file.read(4) if text else b""
            if forms := [form for mark, form in MARKS.items() if head.startswith(mark)]:
                raise DataError(f"{path}: is {forms[0]}; make it a plain file in UTF-8")
            file.seek(len(BOM_UTF8) if head.startswith(BOM_UTF8) else 0)
            yield file
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None


def read_bytes(path: str | Path) -> bytes:
    """The file's bytes; DataError as in `open_file`."""
    with open_file(path) as file:
        return file.read()


def read_archive(path: str | Path, *, mmap: bool = False) -> Any:
    """What `torch.save` wrote: tensors (left on disk with `mmap`) and plain values; nothing in it is run.
    DataError: the file is not there, is damaged, or holds other objects."""
    import torch

    with open_file(path, text=False):
        try:
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
        except Exception as error:  # a dozen types, of which some advise to run what the file says
            reason = f"damaged, or not written by interventune ({type(error).__name__})"
            raise DataError(f"{path}: no readable checkpoint: {reason}") from error


def file_digest(path: str | Path) -> str:
    """sha256 of a file's content."""
    with open_file(path, text=False) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
