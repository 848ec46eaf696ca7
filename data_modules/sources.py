"""One name for any data: `read_questions(source)`, `read_groups(source)`, `read_choices(source)`.

PATH             a file or folder; its format is recognised by the fields of its records, never by its name
FOLDER:SPLIT     one split of a local dataset folder
hub:NAME:SPLIT   a dataset of the Hugging Face Hub, as hub:rajpurkar/squad:validation, with a configuration
                 as hub:hotpotqa/hotpot_qa/distractor:validation
stories:SPLIT    the embedded generator, which needs no download; also stories:train?seed=3
domains:SPLIT    groups about everyday domains: domains:train?number=32&groups=3072&seed=1
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal

from typing_extensions import TypedDict

from data_modules.schema.groups import ScoredGroup
from data_modules.tables import csv_rows, folder_and_split, table_rows
from storage.documents import load_yaml
from storage.errors import DataError
from storage.files import open_file
from storage.json_files import json_lines, load_json

if TYPE_CHECKING:
    from data_modules.schema.groups import Group
    from data_modules.schema.questions import ChoiceQuestion, QAExample

logger = logging.getLogger(__name__)

Kind = Literal["questions", "groups", "choices"]

ENGLISH = re.compile(
    r"\b(?:the|what|who|whose|whom|which|how|when|where|why|did|does|were|are|has|can|could|would|with|from|"
    r"this|that|there|his|their|you|they)\b",
    re.IGNORECASE,
)
"""Words that most English questions have, and that are rare in other languages."""


@dataclass(frozen=True)
class Format:
    """A file format: its fields and its reader (formats.yaml)."""

    name: str
    kind: Kind
    reader: str
    fields: str

    @property
    def marks(self) -> str:
        """The fields that identify it."""
        from data_modules.questions.multiple_choice import LAYOUTS

        return self.fields or "; ".join(layout.fields for layout in LAYOUTS)

    def fits(self, fields: set[str]) -> bool:
        """Whether a record with these fields has this format."""
        return any(fields.issuperset(marks.split()) for marks in self.marks.split(";"))


class _Known(TypedDict):
    formats: list[Format]
    generated: dict[str, dict[Kind, str]]


KNOWN = load_yaml(Path(__file__).with_name("formats.yaml"), _Known)


def read_questions(source: str | Path) -> Iterator[QAExample]:
    """Read questions about a text, with one warning if they do not look English. DataError for a missing
    file, an unknown format, another or no kind of data, a bad record, or an id that occurs twice in a
    variant."""
    seen: set[int] = set()  # hashes: the ids themselves would take several times the memory
    questions = _read(str(source), "questions")
    begun = [*islice(questions, 100)]
    if 2 * sum(ENGLISH.search(example.question) is not None for example in begun) < len(begun):
        warn_of_language(str(source))
    for example in chain(begun, questions):
        key = hash((example.dataset, example.id, example.variant))
        if key in seen:
            raise DataError(f"{source}: the id {example.id!r} occurs twice; each needs its own")
        seen.add(key)
        yield example


@cache
def warn_of_language(source: str) -> None:
    """Warn, once, of a source whose questions are not English."""
    logger.warning(
        "warning: %s: few questions have English words, and variants are made by English rules", source
    )


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
    return list(_read(path, "choices", **({"labels": labels} if labels else {})))


def _read(source: str, kind: Kind, **options: Any) -> Iterator[Any]:
    reader, arguments = _reader_of(source, kind)
    read, record = resolve_name(f"data_modules.{reader}"), None  # imported on use
    for record in read(*arguments, **options):
        yield record
    if record is None:
        raise DataError(f"{source}: holds no {kind}")


def _reader_of(source: str, kind: Kind) -> tuple[str, tuple[Any, ...]]:
    """The reader of a source, which must contain the requested kind, and its arguments: the path, or (place,
    record) of a table, JSON Lines or a JSON list, and a name."""
    prefix = source[: source.find(":") + 1]
    if generator := KNOWN["generated"].get(prefix, {}).get(kind):
        return generator, parse_stories(source) if prefix == "stories:" else (source,)
    name, (head, table) = source.removeprefix("hub:"), _begun(source)
    fields = _first_fields(head) if table is None else {*next(iter(table), ())}
    found = next((row for row in KNOWN["formats"] if row.fits(fields)), None)
    if found and found.kind == kind:
        whole = found.reader.endswith("_file")
        return found.reader, (source,) if whole else (_rows(source, head, table), name)
    if found and (found.kind, kind) == ("groups", "questions"):
        return "groups.sets:read_decided", (source,)
    wrong = f"holds {found.kind}, but {kind} are needed" if found else "unknown format"
    empty = "" if fields else " (empty, or no JSON with fields)"
    known = dict.fromkeys(f"{row.name} ({row.marks})" for row in KNOWN["formats"] if row.kind == kind)
    raise DataError(f"{name}: {wrong}{empty}; the formats and their fields: {', '.join(known)}")


def _begun(source: str) -> tuple[str, Iterable[Mapping[str, Any]] | None]:
    """How a file of text begins; or "" and the rows of a dataset of the Hub, a folder or a parquet file.
    DataError where there is none."""
    name, (path, _) = source.removeprefix("hub:"), folder_and_split(source)
    if name != source or os.path.isdir(path):
        return "", table_rows(name)
    if not os.path.exists(path):
        raise DataError(f"{source}: no such file (other sources begin with hub:, stories: or domains:)")
    with open_file(path) as file:
        head = file.read(1 << 20)  # should contain the first record
    if head[:4] != b"PAR1":
        return head.decode("utf-8-sig", errors="ignore").lstrip(), None
    import datasets  # slow to import, and only tables need it
    from pyarrow.parquet import read_table

    return "", datasets.Dataset(read_table(source))


def _first_fields(head: str) -> set[str]:
    """The fields of the first records of a JSON file, with the names of the fields that contain them."""
    import ijson

    fields = list[str]()
    with suppress(ijson.JSONError):  # where the head ends, or the first line
        for place, event, name in ijson.parse(head.encode(), buf_size=1024):
            if place.count(".") > 9:  # places of a file of brackets would fill the memory
                break
            if event == "map_key":
                fields.append(f"{place}.{name}".replace("item.", "").removeprefix("."))
    return {"x1|x2"} if fields and fields[0].count("|") >= 7 else {*fields}


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
    match = re.fullmatch(r"stories:([^?]+)(?:\?seed=(\d+))?", source)
    if not match:
        raise DataError(f"{source}: write stories:SPLIT or stories:SPLIT?seed=NUMBER")
    return match[1], int(match[2] or 0)
