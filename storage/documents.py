"""Whole files, and text, JSON and YAML in them: read, and checked against a type, with errors that
a user can act on; written under a temporary name and renamed; identified by their digest.

    document = load_json("advice.json", dict[str, list[str]])
    row = check(value, Row, "rows.jsonl, line 2")         # a TypedDict or a dataclass

The type is the only check: a missing field, a number instead of text, or a value that a `Literal`
does not list raises a DataError that names the file, the line and the field. Pipes and devices are
refused, not waited for.
"""

import errno
import hashlib
import math
import os
import shutil
import stat
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from io import BufferedReader
from itertools import starmap
from pathlib import Path
from typing import Any, TextIO, cast

import jiter
import yaml
from typing_extensions import TypeVar

T = TypeVar("T", default=Any)
Rows = Iterator[tuple[str, Any]]
"""Records with their places in a source, for errors."""
LARGEST = 10**6
"""Number of values in a YAML file with its aliases written out: nested ones multiply."""
Values = dict[str, Any]
"""Values by name, as in a JSON object."""
ANY: Any = object
"""For pydantic, a type that accepts all values."""
StrPath = str | Path
"""A path, in either form."""
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
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Writing errors that do not name the file."""


class DataError(ValueError):
    """Bad input, described in one line: the file or record, the field, and what to do about it."""


@contextmanager
def as_data_error(what: str) -> Iterator[None]:
    """Within this context, any exception becomes a one-line DataError: `what`, and the original
    reason.
    """
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{what}: {reason[:500]}") from error


def refuse(defects: Sequence[str]) -> None:
    """Raise a DataError of the first five defects and the number of others, if there are any."""
    if defects:
        shown = [defect[:350] for defect in defects[:5]]
        if len(defects) > 5:
            shown.append(f"and {len(defects) - 5} more")
        raise DataError("; ".join(shown))


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
            kind = "folder" if stat.S_ISDIR(mode) else "pipe, device or socket"
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


def text_digest(text: str) -> str:
    """Return the sha256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def source_digest(source: StrPath) -> str:
    """Return the sha256 of a source that is a file; "" for any other text, however long."""
    return file_digest(source) if os.path.isfile(source) else ""


def load_json(path: StrPath, kind: type[T] = ANY) -> T:
    """Read a JSON file as `kind`; DataError names the file and the field."""
    return check(read_bytes(path), kind, str(path))


def json_lines(path: StrPath) -> Rows:
    """Yield (`PATH, line NUMBER`, value) for every line that is not empty, also after one with an
    error.
    """
    return starmap(lambda where, line: (where, check(line, ANY, where)), _lines(path))


def _lines(path: StrPath) -> Rows:
    with open_file(path) as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield f"{path}, line {number}", line.strip()


def stream_object(path: StrPath) -> Rows:
    """Yield the (key, value) pairs of one large JSON object, in file order, holding one value at a
    time.
    """
    import ijson

    with open_file(path) as file:
        try:
            yield from ijson.kvitems(file, "", use_float=True)
        except ijson.JSONError as error:
            raise DataError(
                f"{path}: not one complete JSON object ({str(error).splitlines()[0]})"
            ) from None


@cache
def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter  # takes 0.15 s, too long for --help

    return TypeAdapter(kind)


def check(value: Any, kind: type[T], where: str) -> T:
    """Check a value, such as a row of a typed table, against `kind`; or bytes, which are JSON:
    there text is not converted to numbers, nor booleans or fractions to integers.

    DataError, beginning with `where`: not JSON, what is missing, or else the first thing that is
    wrong.
    """
    adapter: Any = _adapter(kind)  # type: ignore[arg-type]
    try:
        if isinstance(value, bytes):
            with as_data_error(f"{where}: not JSON"):  # pydantic takes the last of equal keys
                jiter.from_json(value, catch_duplicate_keys=True)
            return adapter.validate_json(value, strict=True)
        return adapter.validate_python(value)
    except DataError:
        raise
    except ValueError as error:
        # A field of another type may belong to another format; a missing one says what to add.
        errors = cast(Any, error).errors(include_url=False)
        first = min(errors, key=lambda part: part["type"] != "missing")
    if first["type"] == "value_error":  # from the record's own check
        raise DataError(f"{where}: {first['ctx']['error']}")
    reason = f"{first['msg'].replace('Input should', 'should')}, found {first['input']!r:.60}"
    if first["type"] == "missing":
        reason = "is missing"
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
    name = f"the field {place.strip('.')!r} " if place else ""
    raise DataError(f"{where}: {name}{reason}")


def plain_json(value: Any) -> Any:
    """Convert to strict JSON: NaN and infinities become None, tuples lists."""
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, inf_nan_mode="null")


def read_text(path: StrPath) -> str:
    """Return the file's text; DataError if it cannot be read or is not UTF-8."""
    try:
        return read_bytes(path).decode().replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise DataError(f"{path}: not a text file in UTF-8") from None


def write_text(path: Path, text: str) -> None:
    """Write the whole file or nothing; create its folder."""
    folder = path.parent.resolve()  # of a/../b no folder a is made
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_text(folder / path.name) as file:
        file.write(text)


def refuse_existing(*paths: Path | None, overwrite: bool) -> None:
    """DataError for the first of the paths that exists, unless it may be overwritten."""
    for path in paths:
        if path is not None and path.exists() and not overwrite:
            raise DataError(f"{path}: already exists; choose another name or add --overwrite")


class Loader(yaml.SafeLoader):
    """A loader that rejects duplicate keys of an object, of which the last would win silently."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        names = list[Any]()
        for key, _ in node.value:
            if key.value in names:
                raise yaml.MarkedYAMLError(
                    problem=f"{key.value} occurs twice", problem_mark=key.start_mark
                )
            names.append(key.value)
        return super().construct_mapping(node, deep)


def load_yaml(path: StrPath, kind: type[T]) -> T:
    """Read a YAML file as `kind`; DataError names the file and the line or field."""
    return parse_yaml(read_text(path), kind, str(path))


def parse_yaml(text: str, kind: type[T], where: str) -> T:
    """Parse a YAML text as `kind`; DataErrors begin with `where`."""
    try:
        value = yaml.load(text, Loader)  # not libyaml's loader: it crashes on deeply nested lists
        if _size(value, {}) > LARGEST:
            raise ValueError("its aliases (*NAME) stand for too much; write values out")
    # A number or a date raises a ValueError.
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        reason = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise DataError(f"{where}{line}: not YAML: {reason}") from None
    return check(value, kind, where)


def _size(value: Any, sizes: dict[int, float]) -> float:
    """The number of values in a value; infinite for one that contains itself."""
    parts = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in sizes:
        sizes[id(value)] = math.inf
        sizes[id(value)] = 1 + sum(_size(part, sizes) for part in parts)
    return sizes[id(value)]


def own_yaml(module: str, kind: type[T], name: str = "") -> T:
    """Read the YAML file next to a module (its `__file__`): `name`, or the one of its own name."""
    path = Path(module).with_suffix(".yaml")
    return load_yaml(path.with_name(name or path.name), kind)
