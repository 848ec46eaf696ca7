"""Checkpoints one after the other over stories that were read and perturbed once: at most two in memory, and
a chunk of stories. Sums go into metrics, the rows of the stories to disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from tqdm.auto import tqdm

from data_modules.schema import Variant
from evaluation.answering.checkpoint import QuestionCheckpoint
from evaluation.answering.interface import Asking
from evaluation.processes import Processes
from evaluation.protocols.shift.batches import StoryBatcher
from evaluation.protocols.shift.sums import Between, CheckpointShift, Place, incomparable
from evaluation.variants import Stories
from storage.errors import DataError
from storage.spool import Spool


class Measured(NamedTuple):
    """What a pass of every checkpoint over the stories gave."""

    checkpoints: list[CheckpointShift]
    notes: list[str]
    """What could not be compared, and why."""
    rows: Spool[tuple[tuple[int, Place], dict[str, Any]]]
    """One for each checkpoint, story and variant of this process's share, with its place."""


def measure(
    named: Mapping[str, str],
    stories: Stories,
    team: Processes,
    asking: Asking,
    *,
    every_layer: bool,
    between: Literal["none", "first", "consecutive"] | None,
    include_question: bool,
    chunk: int,
) -> Measured:
    """Pass over the stories once for every checkpoint.

    Raises:
        ValueError: a checkpoint that cannot be used or, if `between` was asked for, compared.
        DataError: of the data, see `compared_variants`.
    """
    variants = compared_variants(stories)
    measured = Measured([], [], Spool())
    reference: tuple[str, QuestionCheckpoint] | None = None
    for number, (name, path) in enumerate(named.items()):
        model = QuestionCheckpoint(path, asking)
        shift = CheckpointShift(name, model, variants, every_layer=every_layer)
        if reference is not None:
            originals = [story.original for story in next(stories.chunks(chunk))]
            if reason := incomparable(reference[1], model, originals):
                note = f"{reference[0]} and {name} cannot be compared with each other: {reason}"
                if between is not None:
                    raise ValueError(f"--between: {note}; leave them out, or say --between none")
                measured.notes.append(f"{note}.")
            else:
                shift.between = Between(*reference, model)
        batcher = StoryBatcher(
            model.tokenizer,
            model.encoding,
            batch_size=model.batch_size,
            include_question=include_question,
        )
        with tqdm(desc=name, unit=" stories", disable=None if team.first else True) as bar:
            for part in stories.chunks(chunk):
                used = [story for story in part if story.variants or shift.between is not None]
                rows: list[tuple[Place, dict[str, Any]]] = []
                for batch in batcher.batches(used, team):
                    rows += shift.update(batch, model, reference[1] if reference else None)
                for place, row in sorted(rows, key=lambda placed: placed[0]):
                    measured.rows.append(((number, place), row))
                bar.update(len(part))
        shift.add_up()
        measured.checkpoints.append(shift)
        if between == "consecutive" or (between != "none" and number == 0):
            reference = (name, model)
    return measured


def compared_variants(stories: Stories) -> list[Variant]:
    """The variants beside `os`.

    Raises:
        DataError: there is none, or a variant has no original to be compared with.
    """
    sources = ", ".join(stories.options.data)
    if not len(stories.stories):
        raise DataError(f"{sources}: only variants; name the file with their originals (variant os), too")
    for variant, others in stories.others.items():
        if others:
            raise DataError(
                f"{sources}: {others[0].id!r} is a {variant} row without an original; compare variants of "
                "one data set, as perturb writes them"
            )
    variants: list[Variant] = [variant for variant in dict.fromkeys(stories.variants) if variant != "os"]
    if not variants:
        raise DataError("--variants: name one beside os, which the others are compared with")
    return variants
