"""Malformed files, generated from valid ones."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any, NamedTuple

from tests.malformed.documents import Format

Path_ = tuple[str | int, ...]
"""Where a value lies in a document: keys and indices from the outside in."""

REPLACEMENTS: dict[str, Any] = {
    "null": None,
    "number": 7,
    "fraction": 1.5,
    "truth": True,
    "text": "x",
    "list": ["x"],
    "object": {"x": 1},
}


class Case(NamedTuple):
    """A file, and what is to come of it."""

    form: Format
    name: str
    content: bytes | None
    """None: a folder stands in the file's place."""
    told: str | None
    """What the message names beside the file; None where the file is still good."""

    def __str__(self) -> str:
        return f"{self.form.name}: {self.name}"


def field_cases(form: Format) -> Iterator[Case]:
    """Each field left out, and replaced by a value of every other type."""
    for path, value in _fields(form.document):
        name = str(path[-1])
        told = "" if isinstance(path[-1], int) or "|" in name else form.told.get(name, name)
        if any(f".{unused}." in _dotted(path) for unused in form.unused):
            yield _case(form, f"without the unused {_told(path)}", _without(form.document, path), None)
            continue
        if isinstance(path[-1], str):
            result = None if name in form.optional else told
            yield _case(form, f"without {_told(path)}", _without(form.document, path), result)
        kinds = (type(value), *form.accepted.get(name, ()))
        for kind, other in REPLACEMENTS.items():
            if type(other) not in kinds:
                yield _case(form, f"{_told(path)} is {kind}", _with(form.document, path, other), told)


def byte_cases(form: Format) -> Iterator[Case]:
    """What happens to files as a whole."""
    raw = form.text.encode()
    yield Case(form, "with a byte order mark", b"\xef\xbb\xbf" + raw, None)
    yield Case(form, "with line ends of Windows", raw.replace(b"\n", b"\r\n"), None)
    yield Case(form, "a folder", None, "")
    for name, content in (
        ("empty", b""),
        ("white space", b" \n\n"),
        ("zeros", bytes(300)),
        ("latin-1", form.text.encode("latin-1")),
        ("utf-16", form.text.encode("utf-16")),
        ("utf-16 without a mark", form.text.encode("utf-16-le")),
        ("random bytes", bytes(range(255, 0, -1)) * 3),
        ("a byte of another text", raw[:30] + b"\xff" + raw[30:]),
    ):
        yield Case(form, name, content, "")
    if form.document is None:
        return
    for name, content in (
        ("cut after a quarter", raw[: len(raw) // 4]),
        ("cut before the middle", raw[: len(raw) * 2 // 5]),
        ("cut near the end", raw[:-4]),
        ("a zero inside", raw[:20] + b"\0" + raw[20:]),
        ("deeply nested lists", b"[" * 100_000),
        ("deeply nested objects", b'{"data": ' * 100_000),
        ("deeply nested at the end", raw.rstrip()[:-1] + b', "x": ' + b"[" * 100_000),
        ("a number of 5000 digits", b'{"data": ' + b"9" * 5000 + b"}"),
        ("a number", b"7"),
        ("a text", b'"x"'),
        ("null", b"null"),
        ("an empty object", b"{}"),
        ("an empty list", b"[]"),
        ("more behind its end", raw + b"\n]"),
    ):
        yield Case(form, name, content, "")


def sample(cases: Iterable[Case], each: int = 12) -> list[Case]:
    """Some cases of every format, the same in each run; all of them where MALFORMED=all (make chaos)."""
    listed = list(cases)
    if os.environ.get("MALFORMED") == "all":
        return listed
    chosen = []
    for name in dict.fromkeys(case.form.name for case in listed):
        members = [case for case in listed if case.form.name == name]
        chosen += Random(name).sample(members, min(each, len(members)))
    return chosen


def _case(form: Format, name: str, document: Any, told: str | None) -> Case:
    return Case(form, name, form.dump(document).encode(), told)


def _fields(document: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Every field of the first record at each level, and the first element of each list."""
    if isinstance(document, dict):
        items = list(document.items())
        # An object keyed by ids holds many records of one shape.
        items = items[:1] if items and "|" in str(items[0][0]) else items
    elif isinstance(document, list):
        items = [(0, document[0])] if document else []
    else:
        return
    for key, value in items:
        yield (*path, key), value
        yield from _fields(value, (*path, key))


def _with(document: Any, path: Path_, value: Any) -> Any:
    document = copy.deepcopy(document)
    target = document
    for part in path[:-1]:
        target = target[part]
    target[path[-1]] = value
    return document


def _without(document: Any, path: Path_) -> Any:
    document = copy.deepcopy(document)
    target = document
    for part in path[:-1]:
        target = target[part]
    del target[path[-1]]
    return document


def _dotted(path: Path_) -> str:
    return "." + "".join(f"{part}." for part in path)


def _told(path: Path_) -> str:
    return ".".join("KEY" if "|" in str(part) else str(part) for part in path)
