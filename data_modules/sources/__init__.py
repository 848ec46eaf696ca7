"""One name for any data: `read_questions(source)`, `read_groups(source)`, `read_choices(source)`.

PATH             a file or folder; its format is told from the fields of its records, never from its name
FOLDER:SPLIT     one split of a local dataset folder
hub:NAME:SPLIT   a dataset of the Hugging Face Hub, as hub:rajpurkar/squad:validation, with a configuration
                 as hub:hotpotqa/hotpot_qa/distractor:validation
stories:SPLIT    the embedded generator, which needs no download; also stories:train?seed=3
domains:SPLIT    groups about everyday domains: domains:train?number=32&groups=3072&seed=1
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Literal

from data_modules.schema import ChoiceQuestion, Group, QAExample, ScoredGroup
from storage.errors import DataError

Kind = Literal["questions", "groups", "choices"]

GENERATED: dict[tuple[str, str], str] = {
    ("stories:", "questions"): "stories.questions:qa_examples",
    ("stories:", "groups"): "stories.groups:groups",
    ("stories:", "choices"): "stories.questions:choice_examples",
    ("domains:", "groups"): "groups.domains:read_source",
}
"""Of sources that are no files, by what they begin with and what is asked for."""


def read_questions(source: str | Path) -> Iterator[QAExample]:
    """Questions about a text. DataError for a missing file, an unknown format, and another kind of data,
    or none, for a bad record, and for an id that occurs twice in a variant."""
    seen: set[int] = set()  # hashes: the ids themselves would take several times the memory
    for example in _read(str(source), "questions"):
        key = hash((example.dataset, example.id, example.variant))
        if key in seen:
            raise DataError(f"{source}: the id {example.id!r} occurs twice; each needs its own")
        seen.add(key)
        yield example


def read_groups(*sources: str | Path) -> Iterator[Group]:
    """Groups of four variants, of one source after the other; DataError as for questions."""
    for source in sources:
        yield from (record.group for record in read_scored(source))


def read_scored(source: str | Path) -> Iterator[ScoredGroup]:
    """Groups with the scores, targets and answers that their source gives; DataError as for questions."""
    for record in _read(str(source), "groups"):
        yield record if isinstance(record, ScoredGroup) else ScoredGroup(record)


def read_choices(source: str | Path) -> list[ChoiceQuestion]:
    """Multiple-choice questions; `PATH+LABELS` names a file of labels, one whole number a line.

    Raises:
        DataError: names place and field for a missing file or field, another format, not as many labels as
            questions, or a label that no choice has.
    """
    path, labels = split_labels(str(source))
    return list(_read(path, "choices", labels=labels))


def _read(source: str, kind: Kind, **options: Any) -> Iterator[Any]:
    prefix = "".join(source.partition(":")[:2])
    arguments: tuple[Any, ...] = parse_stories(source) if prefix == "stories:" else (source,)
    if reader := GENERATED.get((prefix, kind), ""):
        options = {}
    else:
        from data_modules.sources.formats import opened

        found, arguments = opened(source, kind)
        reader = found.reader
    read, record = resolve_name(f"data_modules.{reader}"), None  # loaded where it is needed
    for record in read(*arguments, **options):
        yield record
    if record is None:
        raise DataError(f"{source}: holds no {kind}")


def split_labels(source: str) -> tuple[str, str]:
    """`PATH+LABELS` as (PATH, LABELS); LABELS is "" where none is named, or where a file has a + in its
    name."""
    path, plus, labels = source.rpartition("+")
    if not plus or Path(source).exists() or source.startswith(("hub:", "stories:")):
        return source, ""
    return path, labels


def parse_stories(source: str) -> tuple[str, int]:
    """`stories:train?seed=3` -> ("train", 3); the seed is 0 unless given."""
    split, _, query = source.removeprefix("stories:").partition("?")
    name, _, value = query.partition("=")
    if not split or (query and (name != "seed" or not value.isdecimal())):
        raise DataError(f"{source}: write stories:SPLIT or stories:SPLIT?seed=NUMBER")
    return split, int(value or 0)
