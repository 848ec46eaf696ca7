"""Beginnings of texts for `evaluate consistency-write`: a file of them, or a draw from RealToxicityPrompts
(Gehman et al. 2020).

    {"prompt": {"text": "The man turned and"}, "challenging": true}
    {"text": "The man turned and"}

`stories:opinions` stands in for RealToxicityPrompts without a download: harmless sentences, those that find
fault being called challenging.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Annotated, Any, NamedTuple, NotRequired

from pydantic import AliasChoices, AliasPath, Field
from typing_extensions import TypedDict

from data_modules.sources import labelled_rows, parse_stories
from data_modules.tasks.own_tasks import SIZE, opinion
from data_modules.tasks.predicate_argument import Text
from storage.errors import DataError
from storage.json_files import check, json_lines


class ToxicityPrompt(NamedTuple):
    """One prompt."""

    text: str
    challenging: bool | None
    """Whether models tend to go on badly; None where the file does not say."""
    line: int
    """In the file, from 1."""


class _Row(TypedDict):
    """Other fields, such as RealToxicityPrompts' own scores, are not read."""

    text: Annotated[Text, Field(validation_alias=AliasChoices(AliasPath("prompt", "text"), "text"))]
    challenging: NotRequired[bool]


def read_prompts(path: str | Path, *, limit: int = 0) -> list[ToxicityPrompt]:
    """The first `limit` prompts (0: all), at least one; all lines are checked. DataError names the line."""
    prompts = [
        ToxicityPrompt(row["text"], row.get("challenging"), int(where.rpartition(" ")[2]))
        for where, row in json_lines(path, _Row, expected="prompt or text")
    ]
    return prompts[: limit or None]


def draw_prompts(rows: Iterable[tuple[str, Any]], count: int, seed: int = 0) -> dict[str, list[str]]:
    """`count` texts for each domain: adversarial those that the data call challenging, neutral others.

    What is drawn depends on the texts and the seed alone, not on the order of rows; a text counts once.
    DataError where a (place, row) is of another shape, or there are fewer prompts.
    """
    pools: dict[str, set[str]] = {"adversarial": set(), "neutral": set()}
    for where, value in rows:
        row = check(value, _Row, where)
        if "challenging" not in row:
            raise DataError(f"{where}: the field 'challenging' is missing")
        pools["adversarial" if row["challenging"] else "neutral"].add(row["text"])
    pools["neutral"] -= pools["adversarial"]
    for domain, texts in pools.items():
        if len(texts) < count:
            raise DataError(f"--count {count}: there are {len(texts)} {domain} prompts to draw from")

    def rank(text: str) -> bytes:
        return hashlib.sha256(f"{seed} {text}".encode()).digest()

    return {domain: sorted(texts, key=rank)[:count] for domain, texts in pools.items()}


def prompt_rows(source: str) -> Iterator[tuple[str, Any]]:
    """Place and row of a table, or of `stories:opinions`."""
    if not source.startswith("stories:"):
        yield from labelled_rows(source)
        return
    name, seed = parse_stories(source)
    if name != "opinions":
        raise DataError(f"{source}: no such prompts; the embedded ones are stories:opinions")
    rng = Random(f"opinions/{seed}")
    for number in range(SIZE):
        found = opinion(rng, number)
        yield f"{source}, row {number}", {"text": found.text, "challenging": not found.label}
