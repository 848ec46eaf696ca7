"""The DataModule of multiple-choice questions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from jsonargparse.typing import NonNegativeInt, PositiveInt

from data_modules.batching.choice_set import ChoiceSet, by_count
from data_modules.batching.data_module import EvalSet, TextDataModule, by_stage
from data_modules.batching.samplers import Draw, cut, length_bucketed
from data_modules.encoding.choices import ChoiceEncoding
from data_modules.sources import read_choices, split_labels
from storage.errors import DataError


@dataclass(kw_only=True)
class Choices:
    """Options of multiple-choice questions.

    Args:
        batch_size: Questions in a training batch.
        shuffle: Draw the order of an epoch anew, questions of similar length together; otherwise questions
            come in the order of their file, as in the authors' code.
        encoding: How a prompt and a choice become a row of tokens.
        limit_train: Train on the first N questions only; 0 uses all.
        limit_val: Likewise for validation, test and prediction.
    """

    batch_size: PositiveInt = 8
    shuffle: bool = True
    encoding: ChoiceEncoding = field(default_factory=ChoiceEncoding)
    limit_train: NonNegativeInt = 0
    limit_val: NonNegativeInt = 0


class ChoicesDataModule(TextDataModule):
    """Multiple-choice questions, read, tokenised in memory and batched.

    A source is a file, with its labels as FILE+LABELS where they stand apart, `hub:NAME:SPLIT`, or
    `stories:choices_train`. Evaluation sets are named; the metric keys of the set called `main` carry no set
    name.

    Args:
        train_choices: Questions to train on.
        val_choices: Questions to validate on, by name.
        test_choices: Questions to test on, by name.
        predict_choices: Questions to write choices for, by name.
        choices: Batches and encoding.
        **options: see TextDataModule.
    """

    kinds = ("choices",)

    def __init__(
        self,
        *,
        train_choices: list[str] | None = None,
        val_choices: dict[str, str] | None = None,
        test_choices: dict[str, str] | None = None,
        predict_choices: dict[str, str] | None = None,
        choices: Choices = Choices(),  # noqa: B008  never mutated
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.train_choices, self.choices = train_choices or [], choices
        self.encoding: ChoiceEncoding = choices.encoding
        self.choice_sources = by_stage(val_choices, test_choices, predict_choices)

    def sources(self) -> Iterable[str]:
        """Every file that the run may read; labels that stand apart are a file of their own."""
        watched = [source for named in self.choice_sources.values() for source in named.values()]
        return [part for source in (*self.train_choices, *watched) for part in split_labels(source)]

    def make_train_set(self) -> ChoiceSet:
        """The questions of all sources."""
        if not self.train_choices:
            raise DataError("data.train_choices: name multiple-choice questions to train on")
        return self.choice_set(self.train_choices, self.choices.limit_train)

    def make_eval_sets(self, stage: str) -> list[EvalSet]:
        """The questions of every named source."""
        named, limit = self.choice_sources[stage], self.choices.limit_val
        return [EvalSet(name, self.choice_set([source], limit)) for name, source in named.items()]

    def choice_set(self, sources: Iterable[str], limit: int) -> ChoiceSet:
        """The first `limit` questions of some sources, or all."""
        questions = [question for source in sources for question in read_choices(source)]
        return ChoiceSet(questions[: limit or None], self.tokenizer, self.encoding, self.architecture)

    def train_batches(self, train_set: ChoiceSet) -> Draw:
        """Draws an epoch of questions, each once, in batches with equally many choices."""
        lengths_Q, members = train_set.lengths, by_count(train_set.counts)
        return partial(choice_batches, lengths_Q=lengths_Q, members=members, choices=self.choices)


def choice_batches(
    rng: np.random.Generator, *, lengths_Q: np.ndarray, members: Mapping[int, list[int]], choices: Choices
) -> list[list[int]]:
    """An epoch of questions, each once, in batches with equally many choices: `members` are those by their
    numbers of choices; their longest rows have `lengths_Q` tokens."""
    batches: list[list[int]] = []
    for of_count in members.values():
        drawn = cut([*range(len(of_count))], choices.batch_size)
        if choices.shuffle:
            drawn = length_bucketed(lengths_Q[of_count], choices.batch_size, rng)
        batches += [[of_count[i] for i in batch] for batch in drawn]
    order = rng.permutation(len(batches)) if choices.shuffle else range(len(batches))
    return [batches[i] for i in order]
