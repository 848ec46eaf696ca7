"""Text, JSON and YAML: written whole; read, and checked against a type, with errors that a user can
act on.

    document = load_json("advice.json", dict[str, list[str]])
    row = check(value, Row, "rows.jsonl, line 2")         # a TypedDict or a dataclass

The type is the only check: a missing field, a number instead of text, or a value that a `Literal`
does not list raises a DataError that names the file, the line and the field.
"""

from collections.abc import Iterator
from functools import cache
from itertools import starmap
from pathlib import Path
from typing import Any, cast

import yaml
from typing_extensions import TypeVar

from .errors import DataError
from .files import StrPath, atomic_text, open_file, read_bytes

T = TypeVar("T", default=Any)
Rows = Iterator[tuple[str, Any]]
"""Records with their places in a source, for errors."""
ANY: Any = object
"""For pydantic, a type that accepts all values."""


def load_json(path: StrPath, kind: type[T] = ANY) -> T:
    """Read a JSON file as `kind`; DataError names the file and the field."""
    return parse_json(read_bytes(path), kind, str(path))


def json_lines(path: StrPath) -> Rows:
    """Yield (`PATH, line NUMBER`, value) for every line that is not empty, also after one with an
    error.
    """
    return starmap(lambda where, line: (where, parse_json(line, ANY, where)), _lines(path))


def _lines(path: StrPath) -> Iterator[tuple[str, bytes]]:
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


def parse_json(text: bytes, kind: type[T], where: str) -> T:
    """Parse a JSON text as `kind`; text is not converted to numbers, nor booleans or fractions to
    integers. DataError, beginning with `where`: not JSON, or not of this kind.
    """
    return check(text, kind, where, as_json=True)


def check(value: Any, kind: type[T], where: str, *, as_json: bool = False) -> T:
    """Check a parsed value, such as a row of a typed table, against `kind`. DataError, beginning
    with `where`: what is missing, or else the first thing that is wrong.
    """
    adapter: Any = _adapter(kind)  # type: ignore[arg-type]
    try:
        if as_json:
            return cast(T, adapter.validate_json(value, strict=True))
        return cast(T, adapter.validate_python(value))
    except ValueError as error:
        # A field of another type may belong to another format; a missing one says what to add.
        errors = cast(Any, error).errors(include_url=False)
        first = min(errors, key=lambda part: part["type"] != "missing")
    if first["type"] == "value_error":  # from the record's own check
        raise DataError(f"{where}: {first['ctx']['error']}")
    if first["type"] == "json_invalid":
        raise DataError(f"{where}: not JSON: {first['msg'].removeprefix('Invalid JSON: ')}")
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
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_text(path) as file:
        file.write(text)


def refuse_existing(*paths: Path | None, overwrite: bool) -> None:
    """DataError for the first of the paths that exists, unless it may be overwritten."""
    for path in paths:
        if path is not None and path.exists() and not overwrite:
            raise DataError(f"{path}: already exists; choose another name or add --overwrite")


def load_yaml(path: StrPath, kind: type[T], loader: Any = yaml.SafeLoader) -> T:
    """Read a YAML file as `kind`; DataError names the file and the line or field."""
    text = read_text(path)
    try:
        value = yaml.load(text, loader)  # not libyaml's loader: it crashes on deeply nested lists
    # A number or a date raises a ValueError.
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        reason = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise DataError(f"{path}{line}: not YAML: {reason}") from None
    return check(value, kind, str(path))


def own_yaml(module: str, kind: type[T]) -> T:
    """Read the YAML file with the name of a module, given as its `__file__`."""
    return load_yaml(Path(module).with_suffix(".yaml"), kind)
