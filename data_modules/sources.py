"""One name for any data: `read_questions(source)`, `read_groups(source)`, `read_choices(source)`.

PATH             a file or folder; the fields of its records tell its format, never its name
FOLDER:SPLIT     one split of a local dataset folder
hub:NAME:SPLIT   a dataset of the Hugging Face Hub, as hub:rajpurkar/squad:validation, with a
                 configuration as hub:hotpotqa/hotpot_qa/distractor:validation
stories:SPLIT    the embedded generator, which needs no download; also stories:train?seed=3
domains:SPLIT    groups about everyday domains: domains:train?number=32&groups=3072&seed=1
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain, count, islice, starmap
from operator import itemgetter
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal

from typing_extensions import TypedDict

from interventune.data_modules.schema.groups import ScoredGroup
from interventune.data_modules.tables import csv_rows, folder_and_split, table_rows
from interventune.storage.documents import load_yaml
from interventune.storage.errors import DataError, refuse
from interventune.storage.files import open_file
from interventune.storage.json_files import check, json_lines, load_json

if TYPE_CHECKING:
    from interventune.data_modules.schema.groups import Group
    from interventune.data_modules.schema.questions import ChoiceQuestion, QAExample

logger = logging.getLogger(__name__)
MARK = "\ufeff"
"""A byte order mark."""

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
    within: str = ""

    def lacking(self, fields: set[str]) -> tuple[float, list[str]]:
        """The share and the names of the fields that the nearest of its layouts lacks."""
        from interventune.data_modules.questions.multiple_choice import LAYOUTS

        marks = self.fields.split(";") if self.fields else [layout.fields for layout in LAYOUTS]
        layouts = [{*layout.split()} for layout in marks]
        rated = (
            (len(layout - fields) / len(layout), sorted(layout - fields)) for layout in layouts
        )
        return min(rated, key=itemgetter(0))


class _Known(TypedDict):
    formats: list[Format]
    generated: dict[str, dict[Kind, str]]


KNOWN = load_yaml(Path(__file__).with_name("formats.yaml"), _Known)


def read_questions(source: str | Path) -> Iterator[QAExample]:
    """Read questions about a text, with one warning if they do not look English. Of questions with
    one id, all but the first get another: `732_2`. DataError for a missing file, an unknown format,
    another or no kind of data, bad records, or a question that occurs twice in a variant.
    """
    questions = _read(str(source), "questions")
    begun = [*islice(questions, 100)]
    if 2 * sum(ENGLISH.search(example.question) is not None for example in begun) < len(begun):
        warn_of_language(str(source))
    # Hashes: the texts and ids themselves would take several times the memory.
    number_of: dict[int, int] = {}
    uses_of: dict[int, Iterator[int]] = defaultdict(partial(count, 1))
    renamed, repeated = 0, list[str]()
    for number, example in enumerate(chain(begun, questions), 1):
        of, name = (example.dataset, example.variant), example.id
        asked = hash((*of, name, example.context, example.query, example.history))
        if (first := number_of.setdefault(asked, number)) < number:
            repeated.append(
                f"{source}: questions {first} and {number} (id {name}) are the same; delete one"
            )
            continue
        while (use := next(uses_of[hash((*of, name))])) > 1:
            name = f"{name}_{use}"
        renamed += name != example.id
        yield replace(example, id=name)
    refuse(repeated)
    if renamed:
        logger.warning(
            "%s: %d questions had the id of another, and got a number after it", source, renamed
        )


@cache
def warn_of_language(source: str) -> None:
    """Warn, once, of a source whose questions are not English."""
    logger.warning(
        "warning: %s: few questions have English words, and variants are made by English rules",
        source,
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
    """Read groups with the scores, targets and answers in their source; DataError as
    for questions.
    """
    for record in _read(str(source), "groups"):
        yield record if isinstance(record, ScoredGroup) else ScoredGroup(record)


def read_choices(source: str | Path) -> list[ChoiceQuestion]:
    """Read multiple-choice questions; `PATH+LABELS` names a file of labels, one integer per line.
    DataError names place and field for a missing file or field, another format, unequal numbers of
    labels and questions, or a label without a choice.
    """
    path, labels = split_labels(str(source))
    return list(_read(path, "choices", **({"labels": labels} if labels else {})))


def _read(source: str, kind: Kind, **options: Any) -> Iterator[Any]:
    """The records; after a defect, the reader goes on with the next row, to name the other defects
    too.
    """
    reader, arguments = _reader_of(source, kind)
    read, record, defects = (
        resolve_name(f"interventune.data_modules.{reader}"),
        None,
        list[str](),
    )  # imported on use
    while True:
        try:
            for record in read(*arguments, **options):
                if not defects:
                    yield record
            break
        except DataError as error:
            if options or kind == "groups" or isinstance(arguments[0], str):
                raise  # one defect here makes others
            defects.append(str(error))
    refuse(defects)
    if record is None:
        raise DataError(f"{source}: holds no {kind}")


def _reader_of(source: str, kind: Kind) -> tuple[str, tuple[Any, ...]]:
    """The reader of a source, which must contain the requested kind, and its arguments: the path,
    or (place, record) of all records, and a name.
    """
    prefix = source[: source.find(":") + 1]
    if generator := KNOWN["generated"].get(prefix, {}).get(kind):
        return generator, parse_stories(source) if prefix == "stories:" else (source,)
    name, (fields, rows) = source.removeprefix("hub:"), _opened(source)
    found = next((row for row in KNOWN["formats"] if not row.lacking(fields)[0]), None)
    if found and found.kind == kind:
        if not fields.isdisjoint(found.within.split()):
            rows = _within(rows, found.within.split())
        return found.reader, (source,) if found.reader.endswith("_file") else (rows, name)
    if found and (found.kind, kind) == ("groups", "questions"):
        return "groups.sets:read_decided", (source,)
    if found:
        raise DataError(f"{name}: holds {found.kind}, but {kind} are needed")
    rated = sorted((*row.lacking(fields), row.name) for row in KNOWN["formats"] if row.kind == kind)
    nearest = ", ".join(f"{row} (lacks {' '.join(lacks)})" for _, lacks, row in rated[:3])
    shown = ", ".join(sorted(fields)[:20]) or "none"
    raise DataError(f"{name}: unknown format; its fields: {shown}; the nearest formats: {nearest}")


def _opened(source: str) -> tuple[set[str], Iterator[tuple[str, Any]]]:
    """The fields of a source's first records, and (place, record) of all. DataError where there are
    none.
    """
    name, (path, _) = source.removeprefix("hub:"), folder_and_split(source)
    if name != source or os.path.isdir(path):
        table = table_rows(name)
    elif not os.path.exists(path):
        raise DataError(
            f"{source}: no such file (other sources begin with hub:, stories: or domains:)"
        )
    else:
        with open_file(path) as file:
            start = file.read(1 << 20)  # should contain the first record
        head = start.decode("utf-8-sig", errors="ignore").strip()
        if not head:
            raise DataError(f"{source}: is empty")
        if head[0] in "{[":
            lines = re.search(r"}\s*\n\s*{", head)
            return _fields(head), starmap(
                _record, json_lines(source) if lines else _document(source)
            )
        if start[:4] == b"PAR1":
            import datasets  # slow to import, and only tables need it
            from pyarrow.parquet import read_table

            table = datasets.Dataset(read_table(source))
        else:
            table = csv_rows(source, tabs="\t" in head.partition("\n")[0])
    rows = ((f"{name}: row {i}", row) for i, row in enumerate(table))
    return _fields(json.dumps(next(iter(table), {}), default=str)), starmap(_record, rows)


def _record(place: str, row: Any) -> tuple[str, dict[str, Any]]:
    """The fields of a row, without a byte order mark before the first."""
    fields = check(row, dict[str, Any], place).items()
    return place, {name.removeprefix(MARK): value for name, value in fields}


def _document(source: str) -> Iterator[tuple[str, Any]]:
    """The rows of a JSON list, or of one called `data` or `samples`; any other document
    is a row.
    """
    document, place = load_json(source), f"{source}: "
    if isinstance(document, dict):
        name = next(
            (name for name in ("data", "samples") if isinstance(document.get(name), list)), ""
        )
        if not name:
            yield f"{source}, line 1", document
            return
        place, document = place + name, document[name]
    yield from ((f"{place}[{i}]", row) for i, row in enumerate(check(document, list[Any], place)))


def _fields(head: str) -> set[str]:
    """The fields of the first records of JSON, with the names of the fields that contain them."""
    import ijson

    fields = list[str]()
    with suppress(ijson.JSONError):  # where the head ends
        for place, event, name in ijson.parse(head.encode(), buf_size=1024, multiple_values=True):
            if place.count(".") > 9:  # places of a file of brackets would fill the memory
                break
            if event == "map_key":
                within = f"{place}.{name.removeprefix(MARK)}".replace("item.", "").removeprefix(".")
                fields.append(within.removeprefix("data."))
    return {"x1|x2"} if fields and fields[0].count("|") >= 7 else {*fields}


def _within(rows: Iterable[tuple[str, Any]], fields: list[str]) -> Iterator[tuple[str, Any]]:
    """The records that these fields hold, one in the other, with the title and context of what
    holds them.
    """
    for number, (place, record) in enumerate(rows):
        field = next((field for field in fields if isinstance(record.get(field), list)), None)
        if field is None:
            yield place, record
            continue
        shared = {"title": record.get("title", str(number)), "context": record.get("context")}
        parts = ((f"{place}.{field}[{i}]", part) for i, part in enumerate(record[field]))
        inside = ((where, shared | part if isinstance(part, dict) else {}) for where, part in parts)
        yield from _within(inside, fields)


def labelled_rows(source: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (place, row) of a table with any fields: from the Hub, a folder, parquet, JSON Lines, a
    JSON list, or CSV (also with tabs). DataError if there is none, or for a file without rows.
    """
    row = None
    for row in _opened(source)[1]:
        yield row
    if row is None:
        raise DataError(f"{source}: holds no rows")


def split_labels(source: str) -> tuple[str, str]:
    """Split `PATH+LABELS` into (PATH, LABELS); LABELS is "" if absent, or if the file has a + in
    its name.
    """
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
