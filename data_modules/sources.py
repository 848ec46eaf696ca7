"""One name for any data: `read_questions(source)`, `read_groups(source)`, `read_choices(source)`.

PATH             a file or folder; its format is recognised by the fields of its records, never by its name
FOLDER:SPLIT     one split of a local dataset folder
hub:NAME:SPLIT   a dataset of the Hugging Face Hub, as hub:rajpurkar/squad:validation, with a configuration
                 as hub:hotpotqa/hotpot_qa/distractor:validation
stories:SPLIT    the embedded generator, which needs no download; also stories:train?seed=3
domains:SPLIT    groups about everyday domains: domains:train?number=32&groups=3072&seed=1
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from data_modules.schema.groups import ScoredGroup
from storage.errors import DataError
from storage.files import open_file
from storage.json_files import json_lines, load_json

if TYPE_CHECKING:
    from data_modules.schema.groups import Group
    from data_modules.schema.questions import ChoiceQuestion, QAExample

Kind = Literal["questions", "groups", "choices"]


class Format(NamedTuple):
    """A file format: its fields and its reader."""

    name: str
    """A format with two layouts has two rows."""
    kind: Kind
    reader: str
    """`module:function` in this package. Functions `read_file` and `read_scored` take a path; any other takes
    (place, record) and the source's name."""
    fields: str
    """The fields that identify it: the first record has all of them, or all after the semicolon. Fields
    inside `data` and its `paragraphs` have these as prefixes. Multiple choice: see `choice_fields`."""


FORMATS = (
    Format("groups", "groups", "schema.groups:read_groups", "subjects variants; group base_scores"),
    Format("unqover", "groups", "groups.unqover_source:read_scored", "x1|x2"),
    Format("lei", "groups", "groups.lei:read_scored", "data.paragraphs.key; data.paragraphs.intervention"),
    Format("squad", "questions", "questions.squad:read_file", "data.paragraphs"),
    Format("coqa", "questions", "questions.coqa:read_file", "data.story"),
    Format("coqa", "questions", "questions.coqa:read_rows", "story questions"),
    Format("hotpotqa", "questions", "questions.hotpotqa:read_rows", "supporting_facts; question answer type"),
    Format("coconflictqa", "questions", "questions.conflicts:read_rows", "parametric_answer context answers"),
    Format("rows", "questions", "schema.questions:read_questions", "answer_type; variant kept"),
    Format("choices", "choices", "questions.multiple_choice:read_rows", ""),
    Format("squad", "questions", "questions.squad:read_rows", "context question"),
)
"""In the order of trial."""

GENERATED: dict[tuple[str, str], str] = {
    ("stories:", "questions"): "stories.questions:qa_examples",
    ("stories:", "groups"): "stories.groups:groups",
    ("stories:", "choices"): "stories.questions:choice_examples",
    ("domains:", "groups"): "groups.domains:read_source",
}
"""Readers of sources that are not files, by prefix and requested kind."""


def read_questions(source: str | Path) -> Iterator[QAExample]:
    """Read questions about a text. DataError for a missing file, an unknown format, another or no kind of
    data, a bad record, or an id that occurs twice in a variant."""
    seen: set[int] = set()  # hashes: the ids themselves would take several times the memory
    for example in _read(str(source), "questions"):
        key = hash((example.dataset, example.id, example.variant))
        if key in seen:
            raise DataError(f"{source}: the id {example.id!r} occurs twice; each needs its own")
        seen.add(key)
        yield example


def read_groups(*sources: str | Path) -> Iterator[Group]:
    """Read groups of four variants from one source after the other; DataError as for questions."""
    for source in sources:
        yield from (record.group for record in read_scored(source))


def held_by(source: str) -> Literal["groups", "questions"]:
    """Return the kind of data in a source, groups if it has both; DataError as for questions."""
    with suppress(DataError):
        return "groups" if next(read_groups(source)) else "questions"
    return "questions" if next(read_questions(source)) else "groups"


def read_scored(source: str | Path) -> Iterator[ScoredGroup]:
    """Read groups with the scores, targets and answers in their source; DataError as for questions."""
    for record in _read(str(source), "groups"):
        yield record if isinstance(record, ScoredGroup) else ScoredGroup(record)


def read_choices(source: str | Path) -> list[ChoiceQuestion]:
    """Read multiple-choice questions; `PATH+LABELS` names a file of labels, one integer per line. DataError
    names place and field for a missing file or field, another format, unequal numbers of labels and
    questions, or a label without a choice."""
    path, labels = split_labels(str(source))
    return list(_read(path, "choices", labels=labels))


def _read(source: str, kind: Kind, **options: Any) -> Iterator[Any]:
    prefix = "".join(source.partition(":")[:2])
    arguments: tuple[Any, ...] = parse_stories(source) if prefix == "stories:" else (source,)
    if generator := GENERATED.get((prefix, kind)):
        reader, options = generator, {}
    else:
        found, arguments = opened(source, kind)
        reader = found.reader
    read, record = resolve_name(f"data_modules.{reader}"), None  # imported on use
    for record in read(*arguments, **options):
        yield record
    if record is None:
        raise DataError(f"{source}: holds no {kind}")


def opened(source: str, kind: Kind) -> tuple[Format, tuple[Any, ...]]:
    """Return the format of a source, which must contain the requested kind, and the arguments of its reader:
    the path, or (place, record) of a table, JSON Lines or a JSON list, and a name."""
    name, (head, table) = source.removeprefix("hub:"), _begun(source)
    fields, wrong = _first_fields(head) if table is None else {*next(iter(table), ())}, "unknown format"
    for found in FORMATS:
        if any(fields.issuperset(group.split()) for group in (found.fields or choice_fields()).split(";")):
            if (found.kind, kind) == ("groups", "questions"):
                return found._replace(reader="groups.sets:read_decided"), (source,)
            if kind != found.kind:
                wrong = f"holds {found.kind}, but {kind} are needed"
                break
            whole = found.reader.endswith((":read_file", ":read_scored"))
            return found, (source,) if whole else (_rows(source, head, table), name)
    wanted = (f"{row.name} ({row.fields or choice_fields()})" for row in FORMATS if kind == row.kind)
    wrong = wrong if fields else f"{wrong} (empty, or no JSON with fields)"
    raise DataError(f"{name}: {wrong}; the formats and their fields: {', '.join(dict.fromkeys(wanted))}")


def choice_fields() -> str:
    """The fields that identify the benchmarks of multiple choice."""
    from data_modules.questions.multiple_choice import LAYOUTS

    return "; ".join(layout.fields for layout in LAYOUTS)


def _begun(source: str) -> tuple[str, Iterable[Mapping[str, Any]] | None]:
    """How a file of text begins; or "" and the rows of a dataset of the Hub, a folder or a parquet file.
    DataError where there is none."""
    name = source.removeprefix("hub:")
    folder, colon, _ = source.rpartition(":")
    there = os.path.exists(source)
    if name != source or os.path.isdir(source) or (colon and not there and os.path.isdir(folder)):
        from data_modules.tables import table_rows

        return "", table_rows(name)
    if not there:
        raise DataError(f"{source}: no such file (other sources begin with hub:, stories: or domains:)")
    with open_file(source) as file:
        head = file.read(1 << 20)  # should contain the first record
    if head[:4] != b"PAR1":
        return head.decode("utf-8-sig", errors="ignore").lstrip(), None
    import datasets  # slow to import, and only tables need it
    from pyarrow.parquet import read_table

    return "", datasets.Dataset(read_table(source))


def _first_fields(head: str) -> set[str]:
    """The fields of the first records of a JSON file; those inside `data` and its `paragraphs` have these
    names before theirs."""
    from pydantic_core import from_json

    # A lone surrogate is refused by the reader of the record, whose error can name it.
    head = re.sub(r"\\u[dD][89a-fA-F]", r"\\u00", head)
    found: Any = None
    for text in (head, head.partition("\n")[0]):  # a whole document, or the first line
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


def labelled_rows(source: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (place, row) of a table with any fields: from the Hub, a folder, parquet, JSON Lines, a JSON
    list, or CSV (also with tabs). DataError if there is none, or for a file without rows."""
    return _rows(source, *_begun(source))


def _rows(source: str, head: str, table: Iterable[Mapping[str, Any]] | None) -> Iterator[tuple[str, Any]]:
    if table is None and head[:1] == "[":
        yield from ((f"{source}: [{i}]", row) for i, row in enumerate(load_json(source, list[Any])))
    elif table is None and head[:1] == "{":
        yield from json_lines(source, dict[str, Any])
    else:
        from data_modules.tables import csv_rows

        rows = csv_rows(source, tabs="\t" in head.partition("\n")[0]) if table is None else table
        yield from ((f"{source.removeprefix('hub:')}: row {i}", row) for i, row in enumerate(rows))


def split_labels(source: str) -> tuple[str, str]:
    """Split `PATH+LABELS` into (PATH, LABELS); LABELS is "" if absent, or if the file has a + in its name."""
    path, plus, labels = source.rpartition("+")
    if not plus or os.path.exists(source) or source.startswith(("hub:", "stories:")):
        return source, ""
    return path, labels


def parse_stories(source: str) -> tuple[str, int]:
    """`stories:train?seed=3` -> ("train", 3); the seed is 0 unless given."""
    split, _, query = source.removeprefix("stories:").partition("?")
    name, _, value = query.partition("=")
    if not split or (query and (name != "seed" or not value.isdecimal())):
        raise DataError(f"{source}: write stories:SPLIT or stories:SPLIT?seed=NUMBER")
    return split, int(value or 0)
