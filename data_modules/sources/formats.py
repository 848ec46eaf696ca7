"""The formats of files, which are told from the fields of their first records, never from a name."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any, NamedTuple

from data_modules.questions.multiple_choice import LAYOUTS
from data_modules.sources.tables import begun, rows_of
from storage.errors import DataError


class Format(NamedTuple):
    """How a format is recognised, and its reader."""

    name: str
    """One with two layouts has two rows."""
    kind: str
    reader: str
    """`module:function` in this room. Functions `read_file` and `read_scored` take a path; any other takes
    (place, record) and the source's name."""
    fields: str
    """By which it is told: the first records have all of them, or all after the semicolon. Those inside
    `data` and its `paragraphs` have these names before theirs."""


CHOICES = "; ".join(layout.fields for layout in LAYOUTS)
FORMATS = (
    Format("groups", "groups", "schema:read_groups", "subjects variants; group base_scores"),
    Format("unqover", "groups", "groups.unqover_source:read_scored", "x1|x2"),
    Format("lei", "groups", "groups.lei:read_scored", "data.paragraphs.key; data.paragraphs.intervention"),
    Format("squad", "questions", "questions.squad:read_file", "data.paragraphs"),
    Format("coqa", "questions", "questions.coqa:read_file", "data.story"),
    Format("coqa", "questions", "questions.coqa:read_rows", "story questions"),
    Format("hotpotqa", "questions", "questions.hotpotqa:read_rows", "supporting_facts; question answer type"),
    Format("rows", "questions", "schema:read_questions", "answer_type; variant kept"),
    Format("choices", "choices", "questions.multiple_choice:read_rows", CHOICES),
    Format("squad", "questions", "questions.squad:read_rows", "context question"),
)
"""In the order in which they are tried."""


def opened(source: str, kind: str | None) -> tuple[Format, tuple[Any, ...]]:
    """The format of a source, which must hold what is asked for, and what its reader takes: the path, or
    (place, record) of a table, of JSON Lines or of a list in JSON, and a name."""
    name, (head, table) = source.removeprefix("hub:"), begun(source)
    fields, wrong = _first_fields(head) if table is None else {*next(iter(table), ())}, "unknown format"
    for found in FORMATS:
        if any(fields.issuperset(group.split()) for group in found.fields.split(";")):
            if (found.kind, kind) == ("groups", "questions"):
                return found._replace(reader="groups.advice:read_decided"), (source,)
            if kind not in (None, found.kind):
                wrong = f"holds {found.kind}; {kind} are needed"
                break
            whole = found.reader.endswith((":read_file", ":read_scored"))
            return found, (source,) if whole else (rows_of(source, head, table), name)
    wanted = (f"{row.name} ({row.fields})" for row in FORMATS if kind in (None, row.kind))
    raise DataError(f"{name}: {wrong}; known by their fields are {', '.join(dict.fromkeys(wanted))}")


def _first_fields(head: str) -> set[str]:
    """The fields of the first records of a JSON file; those inside `data` and its `paragraphs` have these
    names before theirs."""
    from pydantic_core import from_json

    # Half of a surrogate pair is refused by the reader of the record, who can name it.
    head = re.sub(r"\\u[dD][89a-fA-F]", r"\\u00", head)
    found: Any = None
    for text in (head, head.partition("\n")[0]):  # a whole document, or the first of many lines
        with suppress(ValueError):
            found = from_json(text, allow_partial="trailing-strings")
            break
    if isinstance(found, dict) and next(iter(found), "").count("|") >= 7:
        return {"x1|x2"}
    fields: set[str] = set()
    records = [found]
    for prefix, inner in (("", "data"), ("data.", "paragraphs"), ("data.paragraphs.", "")):
        listed = [item for value in records for item in (value if isinstance(value, list) else [value])]
        records = [record for record in listed if isinstance(record, dict)]
        fields |= {prefix + name for record in records for name in record}
        records = [record.get(inner) for record in records]
    return fields
