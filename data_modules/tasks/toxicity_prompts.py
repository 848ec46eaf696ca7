"""Beginnings of texts for `evaluate consistency`: a file of them, or a draw from RealToxicityPrompts
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

from data_modules.sources import parse_stories, table_rows
from data_modules.tasks.own_tasks import SIZE, opinion
from data_modules.tasks.predicate_argument import Text
from storage.errors import DataError
from storage.json_files import check, json_lines

COUNT = 1200
"""Prompts of a domain, as Morabito et al. (2023) say; their files hold 1,199."""


class ToxicityPrompt(NamedTuple):
    """One prompt."""

    text: str
    challenging: bool | None
    """Whether models tend to go on badly; None where the file does not say."""
    line: int
    """In the file, from 1."""


class _Line(TypedDict):
    """A row of a file of prompts; other fields, such as RealToxicityPrompts' own scores, are not read."""

    text: Annotated[Text, Field(validation_alias=AliasChoices(AliasPath("prompt", "text"), "text"))]
    challenging: NotRequired[bool]


def read_prompts(path: str | Path, *, limit: int = 0) -> list[ToxicityPrompt]:
    """The first `limit` prompts (0: all), at least one; all lines are checked. DataError names the line."""
    prompts = [
        ToxicityPrompt(row["text"], row.get("challenging"), int(where.rpartition(" ")[2]))
        for where, row in json_lines(path, _Line, expected="prompt or text")
    ]
    return prompts[: limit or None]


class _Scored(TypedDict):
    text: str
    toxicity: NotRequired[float | None]


class _Row(TypedDict):
    prompt: _Scored
    challenging: bool


def draw_prompts(
    rows: Iterable[tuple[str, Any]], *, count: int = COUNT, seed: int = 0, neutral_below: float | None = None
) -> dict[str, list[str]]:
    """`count` texts for each domain: adversarial those that the data call challenging, neutral others.

    What is drawn depends on the texts and the seed alone, not on the order of rows; a text counts once.

    Args:
        rows: place and row of RealToxicityPrompts.
        count: of each domain.
        seed: of the draw.
        neutral_below: neutral prompts have a lower toxicity than this, by the data's own scores; None takes
            any that is not challenging.

    Raises:
        DataError: a row is of another shape, or there are fewer prompts.
        ValueError: `neutral_below` is no score.
    """
    if neutral_below is not None and not 0 <= neutral_below <= 1:
        raise ValueError(f"--neutral-below {neutral_below:g}: must lie between 0 and 1")
    scored = False
    pools: dict[str, set[str]] = {"adversarial": set(), "neutral": set()}
    for where, value in rows:
        row = check(value, _Row, where)
        text, toxicity = row["prompt"]["text"], row["prompt"].get("toxicity")
        scored = scored or toxicity is not None
        mild = neutral_below is None or (toxicity is not None and toxicity < neutral_below)
        if text.strip() and (row["challenging"] or mild):
            pools["adversarial" if row["challenging"] else "neutral"].add(text)
    pools["neutral"] -= pools["adversarial"]
    for domain, texts in pools.items():
        if len(texts) < count:
            unscored = neutral_below is not None and domain == "neutral" and not scored
            why = "; no prompt has the 'toxicity' that --neutral-below asks for" if unscored else ""
            raise DataError(f"--count {count}: there are {len(texts)} {domain} prompts to draw from{why}")

    def rank(text: str) -> bytes:
        return hashlib.sha256(f"{seed} {text}".encode()).digest()

    return {domain: sorted(texts, key=rank)[:count] for domain, texts in pools.items()}


def prompt_rows(source: str) -> Iterator[tuple[str, Any]]:
    """Place and row of JSON Lines, of `hub:NAME[:SPLIT]`, or of `stories:opinions`."""
    if source.startswith("stories:"):
        name, seed = parse_stories(source)
        if name != "opinions":
            raise DataError(f"{source}: no such prompts; the embedded ones are stories:opinions")
        rng = Random(f"opinions/{seed}")
        for number in range(SIZE):
            found = opinion(rng, number)
            yield f"{source}, row {number}", {"prompt": {"text": found.text}, "challenging": not found.label}
    elif source.startswith("hub:"):
        for number, row in enumerate(table_rows(source.removeprefix("hub:"))):
            yield f"{source}, row {number}", row
    else:
        yield from json_lines(source)
