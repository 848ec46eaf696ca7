"""Whole files: read at once, written under a temporary name and renamed, identified by their
digest. Pipes and devices are refused, not waited for.
"""

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

from .errors import DataError

StrPath = str | Path

MARKS = {
    b"\x1f\x8b": "compressed by gzip",
    b"bzh": "compressed by bzip2",
    b"(\xb5/\xfd": "compressed by zstd",
    b"pk\x03\x04": "a zip archive",
    b"<html": "a web page (HTML)",
    b"<!doctype html": "a web page (HTML)",
    b"\xff\xfe": "text in UTF-16",
    b"\xfe\xff": "text in UTF-16",
    b"version https://git-lfs": "a Git LFS pointer, which `git lfs pull` replaces by the file",
}
"""First bytes, in lower case, of files in formats that cannot be read directly."""
KINDS = {stat.S_IFDIR: "folder", stat.S_IFIFO: "pipe"}
"""What is no regular file, by its file mode; the rest are devices and sockets."""
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Writing errors that do not name the file."""


@contextmanager
def atomic(path: StrPath) -> Iterator[Path]:
    """Yield a temporary path next to `path`, where the block writes a file or a folder, and then
    rename it.

    After an error or a kill, `path` still has its earlier content. Its folder must exist.
    DataError: the folder is not writable, or the disk is full.
    """
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
        with suppress(OSError):  # some network file systems do not support it
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
            with suppress(OSError):  # in a read-only folder even if the file does not exist
                leftover.unlink(missing_ok=True)


@contextmanager
def atomic_text(path: StrPath) -> Iterator[TextIO]:
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
def open_file(path: StrPath, *, text: bool = True) -> Iterator[BufferedReader]:
    """Open a regular file for reading bytes; for text, after its byte order mark. DataError: it is
    absent or unreadable, a folder, or a pipe or device, which may never end; or text is not UTF-8.
    """
    try:
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode):
            kind = KINDS.get(stat.S_IFMT(mode), "device or socket")
            raise DataError(f"{path}: is a {kind}; name a file")
        with open(path, "rb") as file:
            start = file.read(99) if text else b""
            head = start.removeprefix(BOM_UTF8).lstrip().lower()
            if forms := [form for mark, form in MARKS.items() if head.startswith(mark)]:
                raise DataError(f"{path}: is {forms[0]}; make it a plain file in UTF-8")
            file.seek(len(BOM_UTF8) if start.startswith(BOM_UTF8) else 0)
            yield file
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None


def read_bytes(path: StrPath) -> bytes:
    """Return the file's bytes; DataError as in `open_file`."""
    with open_file(path) as file:
        return file.read()


def read_archive(path: StrPath, *, mmap: bool = False) -> Any:
    """Read a `torch.save` file of tensors (left on disk with `mmap`) and plain values; no code in
    it is run. DataError: the file is absent, damaged, or contains other objects.
    """
    import torch

    with open_file(path, text=False):
        try:
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
        except Exception as error:  # a dozen types; some messages advise unsafe loading
            reason = f"damaged, or not written by interventune ({type(error).__name__})"
            raise DataError(f"{path}: no readable checkpoint: {reason}") from error


def file_digest(path: StrPath) -> str:
    """Return the sha256 of a file's content."""
    with open_file(path, text=False) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def source_digest(source: StrPath) -> str:
    """Return the sha256 of a source that is a file; "" for any other text, however long."""
    return file_digest(source) if os.path.isfile(source) else ""
