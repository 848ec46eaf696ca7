"""One name for any data: `read_qa(source)` and `read_groups(source)`.

Questions are SQuAD's, CoQA's, HotpotQA's, or rows written by `python -m data_modules perturb`; groups are
LEI's or UnQover's.

PATH             a file or folder; its format is told from its content, never from its name
FOLDER:SPLIT     one split of a local dataset folder
hub:NAME:SPLIT   a dataset of the Hugging Face Hub, as hub:rajpurkar/squad:validation, with a configuration
                 as hub:hotpotqa/hotpot_qa/distractor:validation; its layout is told from its columns
stories:SPLIT    the embedded generator, which needs no download; also stories:train?seed=3
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from data_modules.schema import Group, QAExample
from storage.errors import DataError
from storage.json_files import load_json

Format = Literal["squad", "lei", "unqover", "coqa", "hotpotqa", "rows", "parquet", "folder"]

_ROW_FIELDS = {"variant", "context", "answer_type", "references", "rationale", "kept"}
"""Fields of the rows of perturb that other formats do not have; most of them tell a row that lacks some."""

_HEAD = 1 << 20
"""Bytes that are looked at before a file is parsed; the first line of perturbed rows must fit."""


def read_qa(source: str | Path, *, skip_bad: bool = False) -> Iterator[QAExample]:
    """Questions about a text from `source` (see the module). DataError for a missing file, an unknown format,
    and a file that holds groups; `skip_bad=True` leaves out questions with wrong offsets and logs it."""
    from data_modules.questions import squad

    text = str(source)
    if text.startswith("stories:"):
        from data_modules.stories import questions as stories

        split, seed = parse_stories(text)
        yield from stories.qa_examples(split, seed)
    elif text.startswith("hub:") or _is_folder_split(text):
        name = text.removeprefix("hub:")
        yield from _table_examples(squad.hub_rows(name), name, skip_bad)
    else:
        kind, document = detect(source)
        if kind == "parquet":
            yield from _table_examples(squad.parquet_rows(source), text, skip_bad)
        elif kind == "folder":
            yield from _table_examples(squad.hub_rows(text), text, skip_bad)
        else:
            yield from _file_examples(kind, document, source, skip_bad)


def _file_examples(kind: Format, document: Any, source: str | Path, skip_bad: bool) -> Iterator[QAExample]:
    """The questions of a file whose format is known."""
    from data_modules.questions import coqa, hotpotqa, squad

    if kind == "squad":
        yield from squad.squad_examples(document, source, skip_bad=skip_bad)
    elif kind == "coqa":
        yield from coqa.coqa_examples(document, source, skip_bad=skip_bad)
    elif kind == "hotpotqa":
        yield from hotpotqa.hotpotqa_examples(document, source, skip_bad=skip_bad)
    elif kind == "rows":
        from data_modules.questions import rows as perturbed

        yield from perturbed.read_rows(source)
    else:
        raise DataError(
            f"{source}: holds groups of underspecified questions; here questions about a text are needed"
        )


def _table_examples(rows: Iterable[Mapping[str, Any]], source: str, skip_bad: bool) -> Iterator[QAExample]:
    """The questions of a table in one of the Hub's layouts, which the first row's columns tell."""
    from data_modules.questions import coqa, hotpotqa, squad

    remaining = iter(rows)
    first = next(remaining, None)
    if first is None:
        return
    if {"story", "questions"} <= first.keys():
        read = coqa.rows_to_coqa
    else:
        read = hotpotqa.rows_to_hotpotqa if "supporting_facts" in first else squad.rows_to_examples
    yield from read(chain([first], remaining), source, skip_bad=skip_bad)


def read_groups(source: str | Path, *, skip_bad: bool = False) -> Iterator[Group]:
    """Groups of four variants from `source` (see the module). DataError for a missing file, an unknown
    format, and a source without groups; `skip_bad=True` leaves out inconsistent records and logs how many."""
    text = str(source)
    if text.startswith("stories:"):
        from data_modules.stories import groups as story_groups

        split, seed = parse_stories(text)
        yield from story_groups.groups(split, seed)
        return
    if text.startswith("hub:"):
        raise DataError(
            f"{source}: groups are read from LEI or UnQover files or from stories:SPLIT, not from the Hub"
        )
    kind, document = detect(source)
    if kind == "lei":
        from data_modules.groups import lei

        yield from (record.group for record in lei.lei_records(document, source, skip_bad=skip_bad))
    elif kind == "unqover":
        from data_modules.groups import unqover_source

        yield from (record.group for record in unqover_source.read_source(source, skip_bad=skip_bad))
    else:
        raise DataError(
            f"{source}: holds plain questions; here groups in LEI's or UnQover's format are needed"
        )


def detect(source: str | Path) -> tuple[Format, Any]:
    """The format of a local path and, where telling it took parsing, the document."""
    path = Path(source)
    if path.is_dir():
        return "folder", None
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD)
    except FileNotFoundError:
        raise DataError(f"{source}: no such file (other sources begin with hub: or stories:)") from None
    except OSError as error:
        raise DataError(f"{source}: cannot be read: {error.strerror}") from None
    if head.startswith(b"PAR1"):
        return "parquet", None
    if _first_key(head).count("|") >= 7:
        return "unqover", None
    if len(_ROW_FIELDS & _first_line(head).keys()) >= 3:
        return "rows", None
    document = load_json(path)
    kind = _kind_of_document(document)
    if kind is None:
        raise DataError(
            f"{source}: unknown format; expected SQuAD or LEI (an object with data[].paragraphs[]), CoQA "
            "(data[].story), HotpotQA (a list of objects with supporting_facts), UnQover (an object keyed by "
            "cluster|cluster|x1|x2|...) or rows written by perturb (JSON Lines)"
        )
    return kind, document


def _kind_of_document(document: Any) -> Format | None:
    paragraph = _first_paragraph(document)
    if isinstance(paragraph, dict):
        return "lei" if {"key", "intervention"} & paragraph.keys() else "squad"
    if isinstance(document, dict):
        return "coqa" if "story" in _first_record(document.get("data")) else None
    return "hotpotqa" if "supporting_facts" in _first_record(document) else None


def _first_record(listed: Any) -> dict[str, Any]:
    """The first object of a list; empty when there is none."""
    first = listed[0] if isinstance(listed, list) and listed else None
    return first if isinstance(first, dict) else {}


def _first_line(head: bytes) -> dict[str, Any]:
    """The JSON object on the first line of a file; empty when there is none."""
    try:
        found = json.loads(head.decode("utf-8-sig", errors="ignore").lstrip().partition("\n")[0])
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _first_key(head: bytes) -> str:
    """The first key of a JSON object, or empty: enough to know a file of gigabytes by."""
    text = head.decode("utf-8-sig", errors="ignore").lstrip()
    if not text.startswith("{"):
        return ""
    try:
        key, _ = json.JSONDecoder().raw_decode(text[1:].lstrip())
    except (ValueError, RecursionError):
        return ""
    return key if isinstance(key, str) else ""


def _first_paragraph(document: Any) -> Any:
    """The first paragraph of a SQuAD-shaped document; None when it has none."""
    try:
        return next(p for article in document["data"] for p in article["paragraphs"])
    except (TypeError, KeyError, StopIteration):
        return None


def _is_folder_split(text: str) -> bool:
    folder, colon, _ = text.rpartition(":")
    return bool(colon) and not Path(text).exists() and Path(folder).is_dir()


def parse_stories(source: str) -> tuple[str, int]:
    """`stories:train?seed=3` -> ("train", 3); the seed is 0 unless given."""
    split, _, query = source.removeprefix("stories:").partition("?")
    name, _, value = query.partition("=")
    if not split or (query and (name != "seed" or not value.isdecimal())):
        raise DataError(f"{source}: write stories:SPLIT or stories:SPLIT?seed=NUMBER")
    return split, int(value or 0)
