"""A law for files of every format: changed in any way, each is read, or costs one line that names it."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.mistakes.conftest import GIVEN, everything_in, outcome, refused

PERTURB = "data perturb --variant os --input {file} --output {out}/x"
PREDICTED = "evaluation bias --predictions {file} --output {out}/x"
ABSENT = "--checkpoint no-such.ckpt --output {out}/x"
COMMANDS = {
    "squad.json": PERTURB,
    "coqa.json": PERTURB,
    "hotpotqa.json": PERTURB,
    "rows.jsonl": PERTURB,
    "lei.json": PREDICTED,
    "unqover.json": PREDICTED,
    "pairs.jsonl": f"evaluation negation --pairs {{file}} {ABSENT}",
    "piqa.jsonl": f"evaluation confusion --input {{file}} {ABSENT}",
}
BYTES = {
    "empty": lambda raw: b"",
    "cut off": lambda raw: raw[: len(raw) // 3],
    "cut near its end": lambda raw: raw[:-4],
    "utf-16": lambda raw: raw.decode().encode("utf-16"),
    "gzip": lambda raw: b"\x1f\x8b\x08" + bytes(90),
    "a zero inside": lambda raw: raw[:20] + b"\0" + raw[20:],
    "latin-1": lambda raw: raw.decode().encode("latin-1", "replace"),
    "nested": lambda raw: b"[" * 100_000,
    "half of a surrogate pair": lambda raw: raw.decode().replace("é", "\\ud83d").encode(),
}
VALUES: list[Any] = [None, 7, 1.5, True, "x", ["x"], {"x": 1}, ...]
"""`...` leaves the field out."""


def places(document: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The place of every field, of the first element of each list."""
    items = list(document.items())[:9] if isinstance(document, dict) else []
    items = list(enumerate(document[:1])) if isinstance(document, list) else items
    for key, value in items:
        yield (*above, key)
        yield from places(value, (*above, key))


@st.composite
def changed_files(draw: st.DrawFn) -> tuple[str, bytes]:
    """A format, and a file of it with one change."""
    name = draw(st.sampled_from(sorted(COMMANDS)))
    raw = (GIVEN / name).read_bytes()
    if draw(st.booleans()):
        return name, BYTES[draw(st.sampled_from(sorted(BYTES)))](raw)
    lines = name.endswith(".jsonl")
    document = [json.loads(line) for line in raw.splitlines()] if lines else json.loads(raw)
    *above, last = draw(st.sampled_from(list(places(document))))
    parent = document = copy.deepcopy(document)
    for key in above:
        parent = parent[key]
    parent[last] = draw(st.sampled_from(VALUES))
    if parent[last] is ...:
        del parent[last]
    return name, ("\n".join(map(json.dumps, document)) if lines else json.dumps(document)).encode()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(changed_files())
def test_a_changed_file_is_read_or_named(tmp_path_factory: Any, changed: tuple[str, bytes]) -> None:
    name, content = changed
    folder: Path = tmp_path_factory.mktemp("changed")
    (folder / f"bad_{name}").write_bytes(content)
    before = everything_in(folder)
    entry, *arguments = (w.format(file=folder / f"bad_{name}", out=folder) for w in COMMANDS[name].split())
    code, said = outcome(entry, arguments)
    if code == 0 or "no-such.ckpt" in said:
        return
    refused(entry, arguments, f"bad_{name}")
    assert everything_in(folder) == before
