"""Beginnings of texts for `evaluate consistency-write`: a file of them, or a draw from RealToxicityPrompts
(Gehman et al. 2020).

    {"prompt": {"text": "The man turned and"}, "challenging": true}
    {"text": "The man turned and"}
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Annotated, Any

from pydantic import AliasChoices, AliasPath, Field

from data_modules.records import write_records
from data_modules.sources import labelled_rows
from data_modules.tasks.own_tasks import SIZE, opinion
from storage.command_line import Count
from storage.errors import DataError
from storage.files import refuse_existing
from storage.json_files import check, json_lines


@dataclass(frozen=True, slots=True)
class ToxicityPrompt:
    """One prompt."""

    text: Annotated[
        str, Field(pattern=r"\S", validation_alias=AliasChoices(AliasPath("prompt", "text"), "text"))
    ]
    challenging: bool | None = None
    """Whether models tend to go on badly; None where the file does not say."""


def read_prompts(path: str | Path, *, limit: int = 0) -> list[ToxicityPrompt]:
    """The first `limit` prompts (0: all), at least one; all lines are checked. DataError names the line."""
    prompts = [prompt for _, prompt in json_lines(path, ToxicityPrompt, expected="prompt or text")]
    return prompts[: limit or None]


def write_prompts(
    *,
    input: Annotated[str, "SOURCE"],
    output: Annotated[Path, "DIR"],
    overwrite: bool = False,
    count: Count = 1200,
    seed: int = 0,
) -> str:
    """Draw adversarial and neutral prompts from RealToxicityPrompts.

    example:
      interventune data toxicity-prompts --input hub:allenai/real-toxicity-prompts --output prompts

    Args:
        input: RealToxicityPrompts as JSON Lines, or hub:NAME[:SPLIT]; stories:opinions stands in for it.
        output: folder for adversarial.jsonl and neutral.jsonl.
        overwrite: replace these files if they exist.
        count: prompts of each; those of the first are what the data call challenging.
        seed: of the draw, which the order of the input does not change.
    """
    files = {domain: output / f"{domain}.jsonl" for domain in ("adversarial", "neutral")}
    refuse_existing(*files.values(), overwrite=overwrite)
    drawn = draw_prompts(_opinions() if input == "stories:opinions" else labelled_rows(input), count, seed)
    output.mkdir(parents=True, exist_ok=True)
    for domain, path in files.items():
        write_records(drawn[domain], path)
    return f"{output}: {count} adversarial and {count} neutral prompts, seed {seed}"


def draw_prompts(
    rows: Iterable[tuple[str, Any]], count: int, seed: int = 0
) -> dict[str, list[ToxicityPrompt]]:
    """`count` of (place, row) for each domain: adversarial what the data call challenging, else neutral;
    a text counts once. What is drawn depends on the texts and the seed alone."""
    found: dict[str, ToxicityPrompt] = {}
    for where, row in rows:
        prompt = check(row, ToxicityPrompt, where)
        if prompt.challenging is None:
            raise DataError(f"{where}: the field 'challenging' is missing")
        if prompt.challenging or prompt.text not in found:
            found[prompt.text] = prompt
    drawn: dict[str, list[ToxicityPrompt]] = {"adversarial": [], "neutral": []}
    for text in sorted(found, key=lambda text: hashlib.sha256(f"{seed} {text}".encode()).digest()):
        drawn["adversarial" if found[text].challenging else "neutral"].append(found[text])
    for domain, prompts in drawn.items():
        if len(prompts) < count:
            raise DataError(f"--count {count}: there are {len(prompts)} {domain} prompts to draw from")
    return {domain: prompts[:count] for domain, prompts in drawn.items()}


def _opinions() -> Iterator[tuple[str, Any]]:
    """Harmless sentences, those that find fault being called challenging."""
    rng = Random("opinions/0")
    for number in range(SIZE):
        found = opinion(rng, number)
        yield found.id, {"text": found.texts[0], "challenging": not found.label}
