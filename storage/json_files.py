"""JSON in with errors that a user can act on, JSON out without half-written files."""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from storage.errors import DataError

logger = logging.getLogger(__name__)

_NAMES = {dict: "an object", list: "a list", str: "a string", int: "a whole number", float: "a number"}
_CHUNK = 1 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What writing may say without naming the file."""


def load_json(path: str | Path) -> Any:
    """The parsed file; DataError names the file, and line and column where it stops being JSON."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            return json.load(file)
    except json.JSONDecodeError as error:
        raise DataError(
            f"{path}: not JSON (line {error.lineno}, column {error.colno}): {error.msg}"
        ) from None
    except UnicodeDecodeError:
        raise DataError(f"{path}: not a text file in UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: {_refused(error)}") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None


def read_text(path: str | Path) -> str:
    """A whole text file; DataError for one that cannot be read or is not UTF-8."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(f"{path}: not a text file in UTF-8") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None


def json_lines(path: str | Path) -> Iterator[tuple[int, str, Any]]:
    """(number, `PATH, line NUMBER`, value) for every line of JSON Lines that is not empty, as it is read.

    DataError names file and line.
    """
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    where = f"{path}, line {number}"
                    yield number, where, parse_line(line, where)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None


def parse_line(line: str | bytes, where: str) -> Any:
    """The value of one line of JSON Lines; DataError begins with `where`."""
    try:
        return json.loads(line.decode("utf-8-sig") if isinstance(line, bytes) else line)
    except UnicodeDecodeError:
        raise DataError(f"{where}: not a text in UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: {_refused(error)}") from None


def _refused(error: ValueError | RecursionError) -> str:
    """Why Python's parser gives up, besides syntax: depth, or a number of thousands of digits."""
    return "nested too deeply" if isinstance(error, RecursionError) else f"not JSON: {error}"


def stream_object(path: str | Path) -> Iterator[tuple[str, Any]]:
    """The (key, value) pairs of one large JSON object, in the file's order, holding one value at a time.

    The buffer doubles until the next pair fits, so one huge value costs at most twice its parsing.
    """
    decoder = json.JSONDecoder()
    try:
        with open(path, encoding="utf-8-sig") as file:
            yield from _pairs(file, decoder, path)
    except UnicodeDecodeError:
        raise DataError(f"{path}: not a text file in UTF-8") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None


def _pairs(file: TextIO, decoder: json.JSONDecoder, path: str | Path) -> Iterator[tuple[str, Any]]:
    buffer, position, opened, size = "", 0, "{", _CHUNK
    while True:
        try:
            key, value, after = _next_pair(buffer, position, opened, decoder)
        except RecursionError as error:
            raise DataError(f"{path}: {_refused(error)}") from None
        except (ValueError, IndexError) as error:
            more = file.read(size)
            if not more:
                raise DataError(f"{path}: not one complete JSON object ({error})") from None
            buffer, position, size = buffer[position:] + more, 0, size * 2
            continue
        if key is None:
            _check_end(file, buffer[after:], path)
            return
        yield key, value
        position, opened, size = after, ",", _CHUNK


def _check_end(file: TextIO, rest: str, path: str | Path) -> None:
    while rest or (rest := file.read(_CHUNK)):
        if rest.strip():
            raise DataError(
                f"{path}: more text behind the end of its JSON object; are these two files in one?"
            )
        rest = ""


def _next_pair(text: str, at: int, opener: str, decoder: json.JSONDecoder) -> tuple[str | None, Any, int]:
    """One pair after `opener`; (None, None, its end) where the object closes. IndexError: text too short."""
    at = _skip_space(text, at)
    if opener == "," and text[at] == "}":
        return None, None, at + 1
    if text[at] != opener:
        raise ValueError(f"expected {opener!r}, found {text[at]!r}")
    at = _skip_space(text, at + 1)
    if opener == "{" and text[at] == "}":
        return None, None, at + 1
    key, at = decoder.raw_decode(text, at)
    at = _skip_space(text, at)
    if not isinstance(key, str) or text[at] != ":":
        raise ValueError("expected a string and a colon")
    value, at = decoder.raw_decode(text, _skip_space(text, at + 1))
    if text[_skip_space(text, at)] not in ",}":  # also what follows the first half of a number, as 0|.5
        raise ValueError("expected a comma or the end of the object")
    return key, value, at


def _skip_space(text: str, at: int) -> int:
    while text[at] in " \t\r\n":
        at += 1
    return at


def field(record: Any, name: str, kind: type | tuple[type, ...], where: str) -> Any:
    """`record[name]`, checked: DataError says what `where` lacks, or what it holds instead."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    expected = " or ".join(_NAMES.get(k, k.__name__) for k in kinds)
    if not isinstance(record, dict):
        raise DataError(f"{where}: expected an object with the field {name!r}, found {_found(record)}")
    if name not in record:
        raise DataError(f"{where}: the field {name!r} ({expected}) is missing")
    value = record[name]
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise DataError(f"{where}: the field {name!r} must be {expected}, found {_found(value)}")
    return value


def _found(value: Any) -> str:
    shown = repr(value)
    return f"{type(value).__name__} {shown if len(shown) <= 60 else shown[:57] + '...'}"


@contextmanager
def atomic_text(path: str | Path) -> Iterator[TextIO]:
    """Open for writing under a temporary name beside `path`; it takes its name only if the block succeeds.

    DataError for a place that cannot be written, or a disk that fills up; an older file then stays as it is.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise DataError(f"{path}: the folder {path.parent} does not exist; create it first")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        ours = error.filename == str(temporary) or (error.filename is None and error.errno in _FULL)
        if not ours:
            raise
        raise DataError(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        with suppress(OSError):  # a folder that is read-only says so even where there is no such file
            temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """A whole file under its name, or none; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_text(path) as file:
        file.write(text)


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk before anybody counts on it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class BadRecords:
    """What to do with a bad record: raise it, or (`skip_bad=True`) count it and go on.

    The count is logged once, as a warning that shows the first of them.
    """

    def __init__(self, source: str | Path, *, skip_bad: bool) -> None:
        self.source = source
        self.skip_bad = skip_bad
        self.count = 0
        self.first: DataError | None = None

    def reject(self, error: DataError) -> None:
        if not self.skip_bad:
            raise error
        self.count += 1
        self.first = self.first or error

    def report(self) -> None:
        if self.count:
            logger.warning("%s: skipped %d bad record(s); the first: %s", self.source, self.count, self.first)
