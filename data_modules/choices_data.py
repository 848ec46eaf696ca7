"""The DataModule of multiple-choice questions."""

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
from jsonargparse.typing import NonNegativeInt, PositiveInt

from .batching.candidates import ChoiceEncoding, ChoiceSet, by_count
from .batching.data_module import Draw, EvalSet, Sources, TextDataModule, length_bucketed
from .encoding.windows import Batches, chunks
from .sources import read_choices


class ChoicesDataModule(TextDataModule):
    """Data: multiple-choice questions.

    A source is a file (FILE+LABELS if the labels are in another file), `hub:NAME:SPLIT`, or
    `stories:choices_train`. Evaluation sets have names; the metrics of the set called `main` are
    logged without it.

    Args:
        train_choices: Questions to train on, as [source, ...].
        val_choices: Questions to validate on, as {name: source}; --data.val_choices.main=dev.jsonl
            sets one.
        test_choices: Questions to test on, as {name: source}.
        predict_choices: Questions whose choices to write, as {name: source}.
        batch_size: Questions in a training batch.
        shuffle: Shuffle in each epoch, with questions of similar length in a batch; otherwise keep
            the order of the file, as in the authors' code.
        encoding: How a prompt and a choice become a row of tokens.
        limit_train: Train on the first N questions only; 0: all.
        limit_val: The same for validation, test and prediction.
        **options: see TextDataModule.
    """

    kinds = ("choices",)

    def __init__(
        self,
        *,
        train_choices: list[str] | None = None,
        val_choices: Sources = None,
        test_choices: Sources = None,
        predict_choices: Sources = None,
        batch_size: PositiveInt = 8,
        shuffle: bool = True,
        encoding: ChoiceEncoding = ChoiceEncoding(),  # noqa: B008  never mutated
        limit_train: NonNegativeInt = 0,
        limit_val: NonNegativeInt = 0,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.train_choices = train_choices or []
        self.encoding = encoding
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.limit_train = limit_train
        self.limit_val = limit_val
        self.choice_sources = self.named(
            self.train_choices, val_choices, test_choices, predict_choices
        )

    def make_train_set(self) -> tuple[ChoiceSet | None, Draw | None]:
        """Return the questions of all sources, in batches with equal numbers of choices."""
        if not self.train_choices:
            return None, None
        data = self.choice_set(self.train_choices, self.limit_train)
        return data, partial(
            choice_batches,
            counts=data.counts,
            lengths=data.lengths,
            batch_size=self.batch_size,
            shuffle=self.shuffle,
        )

    def make_eval_sets(self, stage: str) -> list[EvalSet]:
        """Return the questions of every named source."""
        return [
            EvalSet(name, self.choice_set([source], self.limit_val))
            for name, source in self.choice_sources[stage].items()
        ]

    def choice_set(self, sources: Iterable[str], limit: int) -> ChoiceSet:
        """Return the first `limit` questions of some sources, or all."""
        questions = [question for source in sources for question in read_choices(source)]
        return ChoiceSet(
            questions[: limit or None], self.tokenizer, self.encoding, self.architecture
        )


def choice_batches(
    rng: np.random.Generator,
    counts: np.ndarray,
    lengths: np.ndarray,
    *,
    batch_size: int,
    shuffle: bool,
) -> Batches:
    """Draw an epoch: every question once, in batches with equal numbers of choices."""
    batches = []
    for of_count in by_count(counts).values():
        if shuffle:
            drawn = length_bucketed(lengths[of_count], batch_size, rng)
        else:
            drawn = chunks(range(len(of_count)), batch_size)
        batches += [of_count[batch].tolist() for batch in drawn]
    return [batches[i] for i in rng.permutation(len(batches))] if shuffle else batches
