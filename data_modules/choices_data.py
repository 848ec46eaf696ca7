"""The DataModule of multiple-choice questions, with probes to train against."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import numpy as np

from data_modules.batching.choice_set import ChoiceSet, by_count
from data_modules.batching.data_module import EvalSet, TextDataModule, TrainSet, by_stage
from data_modules.batching.samplers import BatchIndex, length_bucketed, shuffled
from data_modules.choices.probes import no_question, no_right_answer
from data_modules.encoding.choices import ChoiceEncoding
from data_modules.encoding.tables import process_rank
from data_modules.schema import ChoiceQuestion
from data_modules.sources import read_choices, split_labels
from storage.errors import DataError

ProbeName = Literal["no_question", "no_right_answer"]


@dataclass(kw_only=True)
class Choices:
    """Options of multiple-choice questions.

    Args:
        batch_size: Questions in a training batch; perturbed ones come on top.
        shuffle: Draw the order of an epoch anew, questions of similar length together; otherwise questions
            come in the order of their file, as in the authors' code.
        encoding: How a prompt and a choice become a row of tokens.
        probe_training: Add what these probes make of the training questions, which no choice is right in:
            training then wants all choices alike (`model.probe_weight`).
        probe_share: Share of the training questions that each probe is applied to; their perturbed versions
            come in the same batch, so that steps and order are those of training without probes.
        limit_train: Train on the first N questions only; 0 uses all.
        limit_val: Likewise for validation, test and prediction.
    """

    batch_size: int = 8
    shuffle: bool = True
    encoding: ChoiceEncoding = field(default_factory=ChoiceEncoding)
    probe_training: list[ProbeName] = field(default_factory=list)
    probe_share: float = 1.0
    limit_train: int = 0
    limit_val: int = 0

    def __post_init__(self) -> None:
        for name, least in (("batch_size", 1), ("limit_train", 0), ("limit_val", 0)):
            if getattr(self, name) < least:
                raise DataError(f"data.choices.{name} must be at least {least}, got {getattr(self, name)}")
        if not 0 < self.probe_share <= 1:
            raise DataError(f"data.choices.probe_share must lie in 0 .. 1, got {self.probe_share}")
        if len(set(self.probe_training)) < len(self.probe_training):
            raise DataError("data.choices.probe_training: names a probe twice")


class ChoicesDataModule(TextDataModule):
    """Multiple-choice questions, read, tokenised in memory and batched.

    A source is a file, with its labels as FILE+LABELS where they stand apart, `hub:NAME:SPLIT`, or
    `stories:choices_train`. Evaluation sets are named; the metric keys of the set called `main` carry no set
    name.

    Args:
        tokenizer: Hub name, folder, or `stories`; linked from the backbone.
        architecture: Row of the table of backbones; linked from the backbone.
        train_choices: Questions to train on.
        val_choices: Questions to validate on, by name.
        test_choices: Questions to test on, by name.
        predict_choices: Questions to write choices for, by name.
        choices: Batches, encoding, probes to train against.
        eval_batch_size: Rows (choices) in an evaluation batch.
        num_workers: Processes that build batches.
        seed: Of every order and draw; by default that of `seed_everything`.
    """

    kinds = ("choices",)

    def __init__(
        self,
        *,
        tokenizer: str,
        architecture: str,
        train_choices: list[str] | None = None,
        val_choices: dict[str, str] | None = None,
        test_choices: dict[str, str] | None = None,
        predict_choices: dict[str, str] | None = None,
        choices: Choices = Choices(),  # noqa: B008  never mutated
        eval_batch_size: int = 64,
        num_workers: int = 0,
        seed: int | None = None,
    ) -> None:
        super().__init__(
            tokenizer=tokenizer,
            architecture=architecture,
            eval_batch_size=eval_batch_size,
            num_workers=num_workers,
            seed=seed,
        )
        self.train_choices, self.choices = train_choices or [], choices
        self.encoding = choices.encoding
        self.choice_sources = by_stage(val_choices, test_choices, predict_choices)

    encoding: ChoiceEncoding

    def sources(self) -> Iterable[str]:
        """Every file that the run may read; labels that stand apart are a file of their own."""
        watched = [source for named in self.choice_sources.values() for source in named.values()]
        return [part for source in (*self.train_choices, *watched) for part in split_labels(source)]

    def make_train_set(self) -> TrainSet:
        """The questions of all sources, and what the probes make of them."""
        if not self.train_choices:
            return TrainSet(None, None)
        examples = [example for source in self.train_choices for example in read_choices(source)]
        examples = examples[: self.choices.limit_train or None]
        perturbed, followers = with_probes(
            examples, self.choices.probe_training, self.choices.probe_share, self.seed
        )
        return TrainSet(None, None, self._choice_set([*examples, *perturbed], followers))

    def make_eval_sets(self, stage: str) -> list[EvalSet]:
        """The questions of every named source."""
        limit = self.choices.limit_val or None
        return [
            EvalSet(name, self._choice_set(read_choices(source)[:limit]))
            for name, source in self.choice_sources[stage].items()
        ]

    def _choice_set(
        self, examples: Sequence[ChoiceQuestion], followers: Sequence[Sequence[int]] | None = None
    ) -> ChoiceSet:
        return ChoiceSet(examples, self.tokenizer, self.encoding, self.architecture, followers=followers)

    def train_batches(self, train_set: TrainSet) -> Callable[[np.random.Generator], list[BatchIndex]]:
        """Draws an epoch of questions, each once, in batches with equally many choices."""
        if train_set.choices is None:
            raise DataError("data.train_choices: name multiple-choice questions to train on")
        return partial(
            choice_batches,
            lengths_Q=train_set.choices.lengths,
            members=by_count(train_set.choices.counts),
            batch_size=self.choices.batch_size,
            shuffle=self.choices.shuffle,
            world_size=process_rank()[1],
        )


def choice_batches(
    rng: np.random.Generator,
    *,
    lengths_Q: np.ndarray,
    members: Mapping[int, list[int]],
    batch_size: int,
    shuffle: bool = True,
    world_size: int = 1,
) -> list[BatchIndex]:
    """An epoch of multiple-choice questions, each once, in batches with equally many choices.

    Args:
        rng: of the order.
        lengths_Q: tokens of the longest row of every question.
        members: questions by their numbers of choices.
        batch_size: questions in a batch.
        shuffle: see `Choices`.
        world_size: how many processes take batches at the same time.
    """
    batches: list[list[int]] = []
    for of_count in members.values():
        if shuffle:
            drawn = length_bucketed(lengths_Q[of_count], batch_size, rng)
            batches += [[of_count[i] for i in batch] for batch in drawn]
        else:
            batches += [of_count[at : at + batch_size] for at in range(0, len(of_count), batch_size)]
    if shuffle:
        batches = shuffled(batches, lengths_Q, rng, world_size)
    return [BatchIndex((), (), tuple(batch)) for batch in batches]


def with_probes(
    examples: Sequence[ChoiceQuestion], probes: Sequence[ProbeName], share: float, seed: int
) -> tuple[list[ChoiceQuestion], list[list[int]]]:
    """What probes make of a share of the questions, each drawn by (seed, probe); and for every question the
    indices of what was made of it, counted behind the questions.

    Texts come from all the questions, whatever the share.
    """
    added: list[ChoiceQuestion] = []
    followers: list[list[int]] = [[] for _ in examples]
    for p, probe in enumerate(probes):
        order_N = np.random.default_rng([seed, p]).permutation(len(examples))
        drawn = sorted(order_N[: round(share * len(examples))].tolist())
        if probe == "no_question":
            made = no_question(examples[i] for i in drawn)
        else:
            made = no_right_answer(examples, seed, targets=drawn)
        for i, example in zip(drawn, made, strict=True):
            followers[i].append(len(examples) + len(added))
            added.append(replace(example, target="uniform"))
    return added, followers
