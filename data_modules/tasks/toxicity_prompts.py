"""Beginnings of texts for `evaluate consistency-write`: a file of them, or a draw from
RealToxicityPrompts (Gehman et al. 2020).

    {"prompt": {"text": "The man turned and"}, "challenging": true}
    {"text": "The man turned and"}
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AliasChoices, AliasPath, Field

from interventune.data_modules.schema.questions import write_records
from interventune.data_modules.sources import labelled_rows
from interventune.storage.command_line import Count, Source
from interventune.storage.documents import DataError, StrPath, check, refuse_existing, text_digest

from .feature_bias import opinions

_TEXT = AliasChoices("text", AliasPath("prompt", "text"), "prompt")


@dataclass(frozen=True)
class ToxicityPrompt:
    """One prompt."""

    text: Annotated[str, Field(pattern=r"\S", validation_alias=_TEXT)]
    challenging: bool | None = None
    """Whether models tend to continue it badly; None if the file does not say."""


def read_prompts(path: StrPath, *, limit: int = 0) -> list[ToxicityPrompt]:
    """The first `limit` prompts (0: all), at least one; all lines are checked. DataError names the
    row.
    """
    prompts = [check(row, ToxicityPrompt, where) for where, row in labelled_rows(path)]
    return prompts[: limit or None]


def write_prompts(
    *,
    input: Source,
    output: Annotated[Path, "DIR"],
    overwrite: bool = False,
    count: Count | None = None,
    seed: int = 0,
) -> str:
    """Sample adversarial and neutral prompts from RealToxicityPrompts.

    Example: interventune data toxicity-prompts --input hub:allenai/real-toxicity-prompts \\
        --output prompts

    Args:
        input: RealToxicityPrompts as JSON Lines, or hub:NAME[:SPLIT]; stories:opinions is a
            built-in substitute.
        output: folder for adversarial.jsonl and neutral.jsonl.
        overwrite: replace these files if they exist.
        count: number of prompts of each kind (default: as many as there are of both); adversarial
            ones are marked "challenging" in the data.
        seed: seed of the sample, which does not depend on the order of the input.
    """
    files = {output / "adversarial.jsonl": True, output / "neutral.jsonl": False}
    refuse_existing(*files, overwrite=overwrite)
    if input == "stories:opinions":  # critical opinions replace toxic texts
        prompts = [ToxicityPrompt(x.texts[0], not x.label) for x in opinions("opinions/0")]
    else:
        prompts = read_prompts(input)
    texts = {prompt.text for prompt in prompts}  # repeated texts count once
    challenging = {prompt.text for prompt in prompts if prompt.challenging}
    order = sorted(texts, key=lambda text: text_digest(f"{seed} {text}"))
    samples = {
        path: [ToxicityPrompt(text, kind) for text in order if (text in challenging) == kind]
        for path, kind in files.items()
    }
    count = count or min(map(len, samples.values())) or 1
    for path, sample in samples.items():
        if len(sample) < count:
            raise DataError(f"--count {count}: {input} has {len(sample)} prompts for {path.name}")
    output.mkdir(parents=True, exist_ok=True)
    for path, sample in samples.items():
        write_records(sample[:count], path)
    return f"{output}: {count} adversarial and {count} neutral prompts, seed {seed}"
