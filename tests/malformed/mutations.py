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
    named: str | None
    """What the message names beside the file; None where the file may still be good."""
    accepted: bool = False
    """The file is good."""

    def __str__(self) -> str:
        return f"{self.form.name}: {self.name}"


def field_cases(form: Format) -> Iterator[Case]:
    """Each field left out, and replaced by a value of every other type."""
    for path, value in _fields(form.document):
        keys = [part for part in path if isinstance(part, str)]
        last = keys[-1] if keys else ""
        named: str | None = "" if path[-1] != last or "|" in last else last
        if last in form.lenient or any(f"{key}." in form.lenient for key in keys):
            named = None
        where = ".".join(str(part).partition("|")[0] for part in path)
        changes = {f"{where} is {kind}": other for kind, other in REPLACEMENTS.items()}
        for name, other in {f"without {where}": ..., **changes}.items():
            if type(other) is type(value) or (other is ... and isinstance(path[-1], int)):
                continue
            document = copy.deepcopy(form.document)
            parent = document
            for part in path[:-1]:
                parent = parent[part]
            parent[path[-1]] = other
            if other is ...:
                del parent[path[-1]]
            yield Case(form, name, form.dump(document).encode(), named)


def byte_cases(form: Format) -> Iterator[Case]:
    """What happens to files as a whole."""
    raw = form.text.encode()
    yield Case(form, "as it is", raw, None, accepted=True)
    yield Case(form, "with a byte order mark", b"\xef\xbb\xbf" + raw, None, accepted=True)
    yield Case(form, "with line ends of Windows", raw.replace(b"\n", b"\r\n"), None, accepted=True)
    yield Case(form, "a folder", None, "")
    broken = {
        "empty": b"",
        "white space": b" \n\n",
        "zeros": bytes(300),
        "utf-16": form.text.encode("utf-16"),
        "utf-16 without a mark": form.text.encode("utf-16-le"),
        "random bytes": bytes(range(255, 0, -1)) * 3,
        "a byte of another text": raw[:30] + b"\xff" + raw[30:],
    }
    if not form.text.isascii():
        broken["latin-1"] = form.text.encode("latin-1")
    if form.document is not None:
        broken |= {
            "cut after a quarter": raw[: len(raw) // 4],
            "cut near the end": raw[:-4],
            "a zero inside": raw[:20] + b"\0" + raw[20:],
            "deeply nested lists": b"[" * 100_000,
            "deeply nested objects": b'{"data": ' * 100_000,
            "deeply nested at the end": raw.rstrip()[:-1] + b', "x": ' + b"[" * 100_000,
            "a number of 5000 digits": b'{"data": ' + b"9" * 5000 + b"}",
            "a number": b"7",
            "null": b"null",
            "an empty list": b"[]",
            "more behind its end": raw + b"\n]",
        }
    for name, content in broken.items():
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


def _fields(document: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Every field of the first record at each level, and the first element of each list."""
    items: list[tuple[str | int, Any]] = []
    if isinstance(document, dict):
        items = list(document.items())
        if items and "|" in str(items[0][0]):  # keyed by ids: many records of one shape
            items = items[:1]
    elif isinstance(document, list):
        items = [(0, part) for part in document[:1]]
    for key, value in items:
        yield (*path, key), value
        yield from _fields(value, (*path, key))
