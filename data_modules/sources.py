"""One name for any data: `read_qa(source)` and `read_groups(source)`.

PATH             a file or folder; its format is told from its content, never from its name
FOLDER:SPLIT     one split of a local dataset folder
hub:NAME:SPLIT   a dataset of the Hugging Face Hub, as hub:rajpurkar/squad:validation
stories:SPLIT    the embedded generator, which needs no download; also stories:train?seed=3
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from data_modules.json_files import load_json
from data_modules.schema import DataError, Group, QAExample

Format = Literal["squad", "lei", "unqover", "parquet", "folder"]

_HEAD = 1 << 16


def read_qa(source: str | Path, *, skip_bad: bool = False) -> Iterator[QAExample]:
    """Extractive questions from `source` (see the module). DataError for a missing file, an unknown format,
    and a file that holds groups; `skip_bad=True` leaves out questions with wrong offsets and logs it."""
    from data_modules import squad

    text = str(source)
    if text.startswith("stories:"):
        from data_modules import stories

        split, seed = parse_stories(text)
        yield from stories.qa_examples(split, seed)
    elif text.startswith("hub:"):
        yield from squad.read_squad_hub(text.removeprefix("hub:"), skip_bad=skip_bad)
    elif _is_folder_split(text):
        yield from squad.read_squad_hub(text, skip_bad=skip_bad)
    else:
        kind, document = detect(source)
        if kind == "parquet":
            yield from squad.read_squad_parquet(source, skip_bad=skip_bad)
        elif kind == "folder":
            yield from squad.read_squad_hub(text, skip_bad=skip_bad)
        elif kind == "squad":
            yield from squad.squad_examples(document, source, skip_bad=skip_bad)
        else:
            raise DataError(
                f"{source}: holds groups of underspecified questions; here SQuAD-style data is needed"
            )


def read_groups(source: str | Path, *, skip_bad: bool = False) -> Iterator[Group]:
    """Groups of four variants from `source` (see the module). DataError for a missing file, an unknown
    format, and a source without groups; `skip_bad=True` leaves out inconsistent records and logs how many."""
    text = str(source)
    if text.startswith("stories:"):
        from data_modules import story_groups

        split, seed = parse_stories(text)
        yield from story_groups.groups(split, seed)
        return
    if text.startswith("hub:"):
        raise DataError(
            f"{source}: groups are read from LEI or UnQover files or from stories:SPLIT, not from the Hub"
        )
    kind, document = detect(source)
    if kind == "lei":
        from data_modules import lei

        yield from (record.group for record in lei.lei_records(document, source, skip_bad=skip_bad))
    elif kind == "unqover":
        from data_modules import unqover_source

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
    document = load_json(path)
    paragraph = _first_paragraph(document)
    if not isinstance(paragraph, dict):
        raise DataError(
            f"{source}: unknown format; expected SQuAD or LEI (an object with data[].paragraphs[]) or "
            "UnQover (an object keyed by cluster|cluster|x1|x2|...)"
        )
    return ("lei" if "key" in paragraph else "squad"), document


def _first_key(head: bytes) -> str:
    """The first key of a JSON object, or empty: enough to know a file of gigabytes by."""
    text = head.decode("utf-8-sig", errors="ignore").lstrip()
    if not text.startswith("{"):
        return ""
    try:
        key, _ = json.JSONDecoder().raw_decode(text[1:].lstrip())
    except ValueError:
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
