"""Reading and writing of text; reading of YAML."""

from pathlib import Path
from typing import Any, TypeVar

import yaml

from .errors import DataError
from .files import atomic_text, read_bytes
from .json_files import check

T = TypeVar("T")


def read_text(path: str | Path) -> str:
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


def load_yaml(path: str | Path, kind: type[T], loader: Any = yaml.SafeLoader) -> T:
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
