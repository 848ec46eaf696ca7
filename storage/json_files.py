"""JSON (and YAML) in, parsed and checked against a type, with errors that a user can act on.

    document = load_json("advice.json", dict[str, list[str]])
    for where, row in json_lines("rows.jsonl", Row):      # a TypedDict or a dataclass

The type is the whole check: a missing field, a number where a text belongs, or a value that a `Literal` does
not list is a DataError that names the file, the line and the field.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from storage.errors import DataError
from storage.files import open_file, read_bytes, read_text, write_text

if TYPE_CHECKING:
    from pydantic import TypeAdapter

logger = logging.getLogger(__name__)

T = TypeVar("T")

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_CHUNK = 1 << 20
_UNKNOWN = ("unexpected_keyword_argument", "extra_forbidden")
"""Kinds of pydantic's errors that are about a key that is no field."""


@overload
def load_json(path: str | Path) -> Any: ...
@overload
def load_json(path: str | Path, kind: type[T]) -> T: ...
def load_json(path: str | Path, kind: Any = Any) -> Any:
    """The content of a JSON file as `kind`; DataError names the file and the field."""
    return parse_json(read_bytes(path), kind, str(path))


def load_yaml(path: str | Path, kind: type[T]) -> T:
    """The content of a YAML file as `kind`; DataError names the file and the line or field."""
    import yaml  # as pydantic: --help does not have the time

    text = read_text(path)
    try:
        value = yaml.safe_load(text)  # not libyaml's: it crashes on deeply nested lists
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # ValueError: of a number or a date
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        reason = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise DataError(f"{path}{line}: not YAML: {reason}") from None
    return check(value, kind, str(path))


@overload
def json_lines(path: str | Path, *, expected: str = "") -> Iterator[tuple[str, Any]]: ...
@overload
def json_lines(path: str | Path, kind: type[T], *, expected: str = "") -> Iterator[tuple[str, T]]: ...
def json_lines(path: str | Path, kind: Any = Any, *, expected: str = "") -> Iterator[tuple[str, Any]]:
    """(`PATH, line NUMBER`, value) for every line that is not empty, as it is read. Where there must be one,
    `expected` names its fields in the error."""
    empty = True
    with open_file(path) as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                where, empty = f"{path}, line {number}", False
                yield where, parse_json(line.strip(), kind, where)
    if expected and empty:
        raise DataError(f"{path}: holds no rows; expected lines of JSON with {expected}")


def write_json_lines(path: str | Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write a file of JSON Lines, whole or not at all; returns how many."""
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    write_text(Path(path), "".join(lines))
    return len(lines)


def parse_json(text: bytes, kind: type[T], where: str) -> T:
    """A JSON text as `kind`: no number from a text, no whole number from a truth value or a fraction.

    Raises:
        DataError: not JSON, not UTF-8, half a surrogate pair, or not of this kind; begins with `where`.
    """
    text = text.removeprefix(_BYTE_ORDER_MARK)
    try:
        return _adapter(kind).validate_json(text, strict=True)
    except ValueError as error:
        raise _refused(error, _parsed(text, error, where), where) from None


def check(value: Any, kind: type[T], where: str) -> T:
    """A value that was parsed already, such as a row of a typed table, as `kind`; DataError as above."""
    try:
        return _adapter(kind).validate_python(value)
    except ValueError as error:
        raise _refused(error, value, where) from None


def stream_object(path: str | Path) -> Iterator[tuple[str, Any]]:
    """The (key, value) pairs of one large JSON object, in the file's order, holding one value at a time.

    The buffer doubles until the next pair fits, so one huge value costs at most twice its parsing. (ijson's
    fast backend crashes on numbers of thousands of digits and reads half of a surrogate pair as "?".)
    """
    decoder, buffer, at, opener, size = json.JSONDecoder(), "", 0, "{", _CHUNK
    try:
        with open_file(path) as raw:
            file = TextIOWrapper(raw, encoding="utf-8-sig")
            while True:
                begin = at
                try:
                    key, value, at = _next_pair(buffer, at, opener, decoder)
                except RecursionError:
                    raise DataError(f"{path}: nested too deeply") from None
                except (ValueError, IndexError) as error:
                    if not (more := file.read(size)):
                        raise DataError(f"{path}: not one complete JSON object ({error})") from None
                    buffer, at, size = buffer[at:] + more, 0, size * 2
                    continue
                if key is None:
                    break
                escaped = max(buffer.find(start, begin, at) for start in ("\\ud", "\\uD")) >= 0
                if escaped and (place := half_surrogate({key: value})):
                    raise DataError(f"{path}: the field {place!r} holds half of a surrogate pair; remove it")
                yield key, value
                opener, size = ",", _CHUNK
            rest = buffer[at:]
            while rest or (rest := file.read(_CHUNK)):
                if rest.strip():
                    raise DataError(
                        f"{path}: more text behind the end of its JSON object; are these two files in one?"
                    )
                rest = ""
    except UnicodeDecodeError:
        raise DataError(f"{path}: not a text file in UTF-8") from None


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


_ADAPTERS: dict[Any, TypeAdapter[Any]] = {}


def _adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter  # 0.15 s, which --help does not have

    return _ADAPTERS[kind] if kind in _ADAPTERS else _ADAPTERS.setdefault(kind, TypeAdapter(kind))


def _parsed(text: bytes, error: Any, where: str) -> Any:
    """What Python makes of a text that pydantic refused; DataError where it can make nothing of it either."""
    try:
        text.decode()
        value = json.loads(text)
    except UnicodeDecodeError:
        raise DataError(f"{where}: not a text in UTF-8") from None
    except (ValueError, RecursionError):
        reason = error.errors()[0]["msg"].removeprefix("Invalid JSON: ").replace(" line 1 column", " column")
        raise DataError(f"{where}: not JSON: {reason}") from None
    if place := half_surrogate(value):
        raise DataError(f"{where}: the field {place!r} holds half of a surrogate pair; remove it")
    return value


def _refused(error: Any, value: Any, where: str) -> DataError:
    """The first thing that is wrong, says pydantic's error, and where in `value`."""
    errors = error.errors(include_url=False)
    first = errors[0]
    if first["type"] == "value_error":  # the record's own check
        return DataError(f"{where}: {first['ctx']['error']}")
    place, inside = "", value
    for part in first["loc"]:  # also holds the names of the members of a union
        if isinstance(inside, Mapping) and part in inside:
            place, inside = f"{place}.{part}", inside[part]
        elif isinstance(inside, list | tuple) and isinstance(part, int) and part < len(inside):
            place, inside = f"{place}[{part}]", inside[part]
        elif first["type"] == "missing":
            name = f"[{part}]" if isinstance(part, int) else f".{part}"
            strange = [
                e["loc"][-1] for e in errors if e["type"] in _UNKNOWN and e["loc"][:-1] == first["loc"][:-1]
            ]
            hint = f"; {strange[0]!r} is no field" if strange else ""
            return DataError(f"{where}: the field {(place + name).strip('.')!r} is missing{hint}")
    if first["type"] in _UNKNOWN:
        return DataError(f"{where}: {place.strip('.')!r} is no field")
    same = dict.fromkeys(e["msg"] for e in errors if e["input"] is first["input"])
    wanted = " or ".join(message.partition(" should ")[2] or message for message in same)
    for old, new in (
        ("valid ", ""),
        ("array", "list"),
        ("integer", "whole number"),
        (" after validation", ""),
        (r"match pattern '\S'", "not be empty"),
    ):
        wanted = wanted.replace(old, new)
    name = f"the field {place.strip('.')!r}" if place else "this"
    return DataError(f"{where}: {name} should {wanted}, found {type(inside).__name__} {inside!r:.60}")


def plain_json(value: Any) -> Any:
    """The same with NaN and infinities as None, and tuples as lists: what strict JSON can hold."""
    if isinstance(value, Mapping):
        return {str(key): plain_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def half_surrogate(value: Any, place: str = "") -> str:
    """Where a text holds half of a surrogate pair, which JSON can write and UTF-8 cannot; "" for nowhere."""
    if isinstance(value, str):
        return (place or "text") if any("\ud800" <= letter <= "\udfff" for letter in value) else ""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    inner = (
        half_surrogate(str(key)) or half_surrogate(item, f"{place}.{key}".strip(".")) for key, item in items
    )
    return next(filter(None, inner), "")


def field(record: Any, name: str, kind: Any, where: str) -> Any:
    """`record[name]`, checked: DataError says what `where` lacks, or what it holds instead."""
    if not isinstance(record, dict) or name not in record:
        raise DataError(f"{where}: the field {name!r} is missing, found {record!r:.60}")
    value = {name: record[name]}
    try:
        return _adapter(dict[str, kind]).validate_python(value, strict=True)[name]
    except ValueError as error:
        raise _refused(error, value, where) from None


@dataclass
class BadRecords(AbstractContextManager["BadRecords"]):
    """What to do with a bad record: raise it, or (`skip_bad=True`) count it and go on.

    As a context, it warns how many there were and shows the first, also where a reader stops early.
    """

    source: str | Path
    _: KW_ONLY
    skip_bad: bool
    count: int = 0
    first: DataError | None = None

    def reject(self, error: DataError) -> None:
        """Raise the error, or count it."""
        if not self.skip_bad:
            raise error
        self.count += 1
        self.first = self.first or error

    def __exit__(self, *error: object) -> None:
        if self.count:
            logger.warning("%s: skipped %d bad record(s); the first: %s", self.source, self.count, self.first)
