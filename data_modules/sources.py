"""One name for any data: `read_questions(source)`, `read_groups(source)`, `read_choices(source)`.

PATH             a file or folder; the fields of its records tell its format, never its name
FOLDER:SPLIT     one split of a local dataset folder
hub:NAME:SPLIT   a dataset of the Hugging Face Hub, as hub:rajpurkar/squad:validation, with a
                 configuration as hub:hotpotqa/hotpot_qa/distractor:validation
stories:SPLIT    the embedded generator, which needs no download; also stories:train?seed=3
domains:SPLIT    groups about everyday domains: domains:train?number=32&groups=3072&seed=1
"""

import logging
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain, count, islice
from pkgutil import resolve_name
from typing import Any, Literal

from typing_extensions import TypedDict

from interventune.storage.documents import DataError, StrPath, own_yaml, refuse

from .schema.groups import Group, ScoredGroup
from .schema.questions import ChoiceQuestion, QAExample, TextPair, Texts, distinct
from .tables import Rows, opened

logger = logging.getLogger(__name__)

Kind = Literal["questions", "groups", "choices"]

ENGLISH = re.compile(
    r"\b(?:the|what|who|whose|whom|which|how|when|where|why|did|does|were|are|has|can|could|"
    r"would|with|from|this|that|there|his|their|you|they)\b",
    re.IGNORECASE,
)
"""Words that most English questions have, and that are rare in other languages."""


@dataclass
class Format:
    """A file format: its fields and its reader (formats.yaml)."""

    name: str
    kind: Kind
    reader: str
    fields: list[list[str]]
    within: Texts = ()

    def lacking(self, fields: set[str]) -> tuple[float, list[str]]:
        """The share and the names of the fields that the nearest of its layouts lacks."""
        from .questions.multiple_choice import LAYOUTS

        layouts = map(set, self.fields or [layout.fields for layout in LAYOUTS])
        nearest = min(layouts, key=lambda layout: len(layout - fields) / len(layout))
        missing = sorted(nearest - fields)
        return len(missing) / len(nearest), missing


class _Known(TypedDict):
    formats: list[Format]
    generated: dict[str, dict[Kind, str]]


KNOWN = own_yaml(__file__, _Known, "formats.yaml")


def read_questions(source: StrPath) -> Iterator[QAExample]:
    """Read questions about a text, with one warning if they do not look English.

    Of questions with one id, all but the first get another: `732_2`. DataError for a missing file,
    an unknown format, another or no kind of data, bad records, or a question that occurs twice in a
    variant.
    """
    questions = _read(source, "questions")
    first = [*islice(questions, 100)]
    english = [example for example in first if ENGLISH.search(example.question)]
    if 2 * len(english) < len(first):
        warn_of_language(source)
    # Hashes: the texts and ids themselves would take several times the memory.
    number_of: dict[int, int] = {}
    uses_of = defaultdict[int, Iterator[int]](partial(count, 1))
    renamed = 0
    repeated = []
    for number, example in enumerate(chain(first, questions), 1):
        name = example.id
        kind = example.dataset, example.variant
        content = (kind, name, example.context, example.query, example.history)
        original = number_of.setdefault(hash(content), number)
        if original < number:
            repeated.append(
                f"{source}: questions {original} and {number} (id {name}) are the same; delete one"
            )
            continue
        while (use := next(uses_of[hash((kind, name))])) > 1:
            name = f"{name}_{use}"
        if name != example.id:
            renamed += 1
        yield replace(example, id=name)
    refuse(repeated)
    if renamed:
        logger.warning(
            f"{source}: {renamed} questions had the id of another, and got a number after it"
        )


@cache
def warn_of_language(source: StrPath) -> None:
    """Warn, once, of a source whose questions are not English."""
    logger.warning(
        f"{source}: few questions have English words, and variants are made by English rules"
    )


def read_groups(*sources: StrPath) -> Iterator[Group]:
    """Read groups of four variants from one source after the other; DataError as for questions."""
    return (record.group for record in read_scored(*sources))


def held_by(source: str) -> Literal["groups", "questions"]:
    """Return the kind of data in a source, groups if it has both; DataError as for questions."""
    with suppress(DataError):
        next(read_groups(source))
        return "groups"
    next(read_questions(source))
    return "questions"


def read_scored(*sources: StrPath) -> Iterator[ScoredGroup]:
    """Read groups with their files' scores, targets and answers; DataError as for questions."""
    seen = set[int]()
    for source in sources:
        for record in _read(source, "groups"):
            scored = record if isinstance(record, ScoredGroup) else ScoredGroup(record)
            key = scored.group.key
            if hash(key) in seen:
                raise DataError(f"{source}: the group {key!r} occurs a second time; delete one")
            seen.add(hash(key))
            yield scored


def read_choices(source: StrPath) -> list[ChoiceQuestion]:
    """Read multiple-choice questions; `PATH+LABELS` names a file of labels, one integer per line.
    DataError names place and field for a missing file or field, another format, unequal numbers of
    labels and questions, or a label without a choice.
    """
    path, labels = split_labels(str(source))
    options = {"labels": labels} if labels else {}
    questions = list(_read(path, "choices", **options))
    if equal := [x.id for x in questions if len(distinct(x.choices)) < len(x.choices)]:
        logger.warning(
            f"{source}: of {len(equal)} questions two choices are equal, first of "
            f"{equal[0]}; delete them"
        )
    return questions


def _read(source: StrPath, kind: Kind, **options: Any) -> Iterator[Any]:
    """The records; after a defect, the reader goes on, to name the other defects too."""
    reader, arguments = _reader_of(str(source), kind)
    read = resolve_name(f"interventune.data_modules.{reader}")  # imported on use
    record = None
    defects: list[str] = []
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
    """The reader of a source, which must contain the requested kind, and its arguments.

    These are the path, or (place, record) of all records, and a name.
    """
    prefix = source[: source.find(":") + 1]
    if generator := KNOWN["generated"].get(prefix, {}).get(kind):
        return generator, parse_stories(source) if prefix == "stories:" else (source,)
    name = source.removeprefix("hub:")
    formats = KNOWN["formats"]
    fields, rows = opened(source)
    match = next((row for row in formats if not row.lacking(fields)[1]), None)
    if match is None:
        rated = sorted((*row.lacking(fields), row.name) for row in formats if row.kind == kind)
        nearest = ", ".join(f"{row} (lacks {' '.join(lacks)})" for _, lacks, row in rated[:3])
        shown = ", ".join(sorted(fields)[:20]) or "none"
        raise DataError(
            f"{name}: unknown format; its fields: {shown}; the nearest formats: {nearest}"
        )
    if match.kind == kind:
        if match.reader.endswith("_file"):
            return match.reader, (source,)
        if not fields.isdisjoint(match.within):
            rows = _within(rows, match.within)
        return match.reader, (rows, name)
    if (match.kind, kind) == ("groups", "questions"):
        return "groups.sets:gold_examples", (read_groups(source), source)
    raise DataError(f"{name}: holds {match.kind}, but {kind} are needed")


def _within(rows: Rows, fields: Sequence[str]) -> Rows:
    """The records that these fields hold, one in the other, with the outer title and context."""
    for number, (place, record) in enumerate(rows):
        field = next((field for field in fields if isinstance(record.get(field), list)), None)
        if field is None:
            yield place, record
            continue
        shared = {"title": record.get("title", str(number)), "context": record.get("context")}
        parts = (
            (f"{place}.{field}[{i}]", shared | part if isinstance(part, dict) else {})
            for i, part in enumerate(record[field])
        )
        yield from _within(parts, fields)


def labelled_rows(source: StrPath) -> Rows:
    """Yield (place, row) of a table with any fields, from the Hub, a folder or a file.

    A file is parquet, JSON Lines, a JSON list, or CSV (also with tabs). DataError if there is none,
    or for a file without rows.
    """
    row = None
    for row in opened(str(source))[1]:
        yield row
    if row is None:
        raise DataError(f"{source}: holds no rows")


def split_labels(source: str) -> TextPair:
    """Split `PATH+LABELS` into (PATH, LABELS); without labels, LABELS is "".

    The name of a file that exists may have a + itself.
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
