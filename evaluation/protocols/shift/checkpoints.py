"""Checkpoints one after the other over the data, at most two in memory, and a chunk of stories.

Sums go into metrics, the rows of the stories into a temporary file.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from typing import Any, Literal, TextIO

from tqdm.auto import tqdm

from data_modules.schema import QAExample, Variant
from evaluation.answering.predictor import Predictor
from evaluation.protocols.shift.batches import StoryBatcher
from evaluation.protocols.shift.distributed import Processes
from evaluation.protocols.shift.pairs import StorySource
from evaluation.protocols.shift.scores import (
    BetweenSums,
    CheckpointShift,
    CheckpointSums,
    Place,
    incomparable,
)
from storage.errors import DataError

BetweenMode = Literal["none", "first", "consecutive"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is measured.

    Args:
        every_layer: the embeddings and every layer under each variant, not the last alone.
        between: which checkpoint each is compared with: none, the first of all, or the one before it.
        strict: what cannot be compared is an error; otherwise a note.
        include_question: question tokens count as common tokens, too.
        chunk: stories that are read at a time.
    """

    every_layer: bool = False
    between: BetweenMode = "first"
    strict: bool = False
    include_question: bool = False
    chunk: int = 256


@dataclass(frozen=True)
class ShiftResults:
    """What the report is made of."""

    dataset: str
    variants: tuple[Variant, ...]
    checkpoints: list[CheckpointShift]
    stories: int
    rejected: dict[Variant, Counter[str]]
    notes: list[str]
    rows: Iterable[dict[str, Any]]
    """One for each checkpoint, variant and story, in this order. Only the first process has them."""


def measure(
    named: Sequence[tuple[str, str]],
    source: StorySource,
    team: Processes,
    args: argparse.Namespace,
    settings: Settings,
) -> ShiftResults:
    """Pass over the data once for every checkpoint; the flags are those of `add_prediction_arguments`.

    Raises:
        ValueError: a checkpoint that cannot be used or, if `settings.strict`, compared.
        DataError: of the data, see StorySource; a variant that no story allows.
    """
    file = new_file()
    checkpoints: list[CheckpointShift] = []
    notes: list[str] = []
    reference: tuple[str, Predictor] | None = None
    stories = 0
    for number, (name, path) in enumerate(named):
        predictor = Predictor.of(path, args)
        passing = Pass(name, predictor, reference, source, settings, notes)
        for place, row in passing.rows(team):
            file.write(json.dumps([[number, *place], row]) + "\n")
        stories = passing.stories
        checkpoints.append(passing.sums.result())
        check_filled(checkpoints[-1], source)
        if settings.between == "consecutive" or (settings.between == "first" and number == 0):
            reference = (name, predictor)
    files = team.gather_lines(file, new_file)
    rejected = source.rejected
    return ShiftResults(
        source.dataset, source.variants, checkpoints, stories, rejected, notes, merged_rows(files)
    )


class Pass:
    """One checkpoint on all stories.

    Args:
        name: of the checkpoint.
        predictor: the checkpoint.
        reference: what it is compared with, by name; None for nothing.
        source: the stories.
        settings: what is measured.
        notes: what could not be compared, and why, is added here.
    """

    def __init__(
        self,
        name: str,
        predictor: Predictor,
        reference: tuple[str, Predictor] | None,
        source: StorySource,
        settings: Settings,
        notes: list[str],
    ) -> None:
        self.name, self.predictor, self.source, self.settings = name, predictor, source, settings
        self.notes = notes
        layers = predictor.model.config.num_hidden_layers + 1 if settings.every_layer else 1
        self.sums = CheckpointSums(name, predictor, source.variants, layers=layers)
        self.reference = reference
        self.stories = 0

    def rows(self, team: Processes) -> Iterator[tuple[Place, dict[str, Any]]]:
        """Score this process's share; its rows, in the order of stories and variants."""
        batcher = StoryBatcher(
            self.predictor.tokenizer,
            self.predictor.encoding,
            batch_size=self.predictor.batch_size,
            include_question=self.settings.include_question,
        )
        with tqdm(desc=self.name, unit=" stories", disable=None if team.first else True) as bar:
            for chunk in self.source.chunks(self.settings.chunk):
                if not self.stories and self.reference is not None:
                    self.sums.between = self.comparison([story.original for story in chunk])
                self.stories += len(chunk)
                used = [story for story in chunk if story.variants or self.sums.between is not None]
                told = [row for batch in batcher.batches(used, team) for row in self.sums.update(batch)]
                yield from sorted(told, key=lambda placed: placed[0])
                bar.update(len(chunk))

    def comparison(self, examples: Sequence[QAExample]) -> BetweenSums | None:
        """Sums of the comparison with the reference, if the first examples do not speak against it."""
        assert self.reference is not None
        other, reference = self.reference
        if reason := incomparable(reference, self.predictor, examples):
            told = f"{other} and {self.name} cannot be compared with each other: {reason}"
            if self.settings.strict:
                raise ValueError(f"--between: {told}; leave them out, or say --between none")
            self.notes.append(told + ".")
            return None
        return BetweenSums((other, self.name), reference, self.predictor)


def check_filled(checkpoint: CheckpointShift, source: StorySource) -> None:
    """Raise DataError for a variant that no story has."""
    for variant, result in checkpoint.shift.items():
        if not int(result.n) and not int(result.skipped):
            reasons = source.rejected.get(variant, Counter())
            told = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
            raise DataError(f"no story is left in variant {variant}" + (f": {told}" if told else ""))


def new_file() -> TextIO:
    """A temporary file without a name: nothing is left of it, however the process ends."""
    return tempfile.TemporaryFile("w+", encoding="utf-8")


def merged_rows(files: Sequence[TextIO]) -> Iterator[dict[str, Any]]:
    """The rows of all processes in their common order, one line of each file at a time."""
    lines: list[Iterator[list[Any]]] = [map(json.loads, file) for file in files]
    key: Callable[[list[Any]], list[int]] = lambda line: line[0]  # noqa: E731
    for _, row in merge(*lines, key=key):
        yield row
