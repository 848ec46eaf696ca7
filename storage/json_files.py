"""JSON (and YAML) in, parsed and checked against a type, with errors that a user can act on.

    document = load_json("advice.json", dict[str, list[str]])
    for where, row in json_lines("rows.jsonl", Row):      # a TypedDict or a dataclass

The type is the whole check: a missing field, a number where a text belongs, or a value that a `Literal` does
not list is a DataError that names the file, the line and the field.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from storage.errors import DataError
from storage.files import open_file, read_bytes, read_text

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@overload
def load_json(path: str | Path) -> Any: ...
@overload
def load_json(path: str | Path, kind: type[T]) -> T: ...
def load_json(path: str | Path, kind: Any = Any) -> Any:
    """The content of a JSON file as `kind`; DataError names the file and the field."""
    return parse_json(read_bytes(path), kind, str(path))


def load_yaml(path: str | Path, kind: type[T], loader: Any = None) -> T:
    """The content of a YAML file as `kind`; DataError names the file and the line or field."""
    import yaml  # as pydantic: --help does not have the time

    text = read_text(path)
    try:
        value = yaml.load(text, loader or yaml.SafeLoader)  # not libyaml's: it crashes on deeply nested lists
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


def parse_json(text: bytes, kind: type[T], where: str) -> T:
    """A JSON text as `kind`: no number from a text, no whole number from a truth value or a fraction.

    Raises:
        DataError: not JSON, or not of this kind; begins with `where`.
    """
    try:
        return _adapter(kind).validate_json(text.removeprefix(_BYTE_ORDER_MARK), strict=True)
    except ValueError as error:
        raise _refused(error, where) from None


def check(value: Any, kind: type[T], where: str) -> T:
    """A value that was parsed already, such as a row of a typed table, as `kind`; DataError as above."""
    try:
        return _adapter(kind).validate_python(value)
    except ValueError as error:
        raise _refused(error, where) from None


def stream_object(path: str | Path) -> Iterator[tuple[str, Any]]:
    """The (key, value) pairs of one large JSON object, in the file's order, holding one value at a time."""
    import ijson

    with open_file(path) as file:
        if file.read(3) != _BYTE_ORDER_MARK:
            file.seek(0)
        try:
            yield from ijson.kvitems(file, "", use_float=True)
        except ijson.JSONError as error:
            raise DataError(f"{path}: not one complete JSON object ({str(error).splitlines()[0]})") from None


_ADAPTERS: dict[Any, TypeAdapter[Any]] = {}


def _adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter  # 0.15 s, which --help does not have

    return _ADAPTERS.get(kind) or _ADAPTERS.setdefault(kind, TypeAdapter(kind))


def _refused(error: Any, where: str) -> DataError:
    """The first thing that is wrong, by pydantic's error."""
    first = error.errors(include_url=False)[0]
    if first["type"] == "value_error":  # the record's own check
        return DataError(f"{where}: {first['ctx']['error']}")
    if first["type"] == "json_invalid":
        return DataError(f"{where}: not JSON: {first['msg'].removeprefix('Invalid JSON: ')}")
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
    found = "" if first["type"] == "missing" else f", found {first['input']!r:.60}"
    name = f"the field {place.strip('.')!r}: " if place else ""
    return DataError(f"{where}: {name}{first['msg']}{found}")


def plain_json(value: Any) -> Any:
    """The same with NaN and infinities as None, and tuples as lists: what strict JSON can hold."""
    if isinstance(value, Mapping):
        return {str(key): plain_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def field(record: Any, name: str, kind: Any, where: str) -> Any:
    """`record[name]`, checked: DataError says what `where` lacks, or what it holds instead."""
    if not isinstance(record, Mapping) or name not in record:
        raise DataError(f"{where}: the field {name!r} is missing, found {record!r:.60}")
    return check({name: record[name]}, dict[str, kind], where)[name]
