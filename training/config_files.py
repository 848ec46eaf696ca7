"""Look at the configuration files of a command line before the parser does, which would not name them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

FLAGS = ("-c", "--config")
OBJECTS = ("trainer", "data", "run", "backbone", "checkpoint", "model")


def check_config_files(arguments: Sequence[str]) -> None:
    """Raise ValueError for a file that is no YAML object, naming it and the line.

    A file that does not exist is left to the parser, which names it.
    """
    for path in config_files(arguments):
        if path.is_file():
            _check(path)


def config_files(arguments: Sequence[str]) -> Iterator[Path]:
    """The files behind `-c FILE`, `--config FILE` and the like with `=`.

    >>> [str(path) for path in config_files(["fit", "-c", "a.yaml", "--config=b.yaml", "--run.name", "c"])]
    ['a.yaml', 'b.yaml']
    """
    for flag, following in zip(arguments, [*arguments[1:], ""], strict=True):
        name, equals, value = flag.partition("=")
        if name in FLAGS and (equals or following):
            yield Path(value if equals else following)


def _check(path: Path) -> None:
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError:
        raise ValueError(f"{path}: not a text file in UTF-8") from None
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ValueError(f"{path}: {line}not YAML: {error.problem}") from None
    except (yaml.YAMLError, RecursionError) as error:
        told = str(error).splitlines()[0] if isinstance(error, yaml.YAMLError) else "nested too deeply"
        raise ValueError(f"{path}: not YAML: {told}") from None
    if found is not None and not isinstance(found, dict):
        raise ValueError(f"{path}: expected keys such as `trainer:`, found {type(found).__name__}")
    for name in OBJECTS:
        value = (found or {}).get(name)
        if value is not None and not isinstance(value, (dict, str)):
            raise ValueError(f"{path}: {name} must be an object with keys of its own, found {value!r}")
