"""Multiple choice in the DataModule: options, sets to train and to evaluate on, batches of an epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from torch.utils.data import Sampler

from data_modules.batching.eval_sets import EvalSet
from data_modules.batching.samplers import BatchIndex, length_bucketed, shuffled
from data_modules.choices.benchmarks import read_multiple_choice
from data_modules.choices.probes import no_question, no_right_answer
from data_modules.encoding.choices import ChoiceEncoding, ChoiceSet, by_count
from data_modules.schema import ChoiceQuestion
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


class ChoiceSampler(Sampler[BatchIndex]):
    """Batches of questions with equally many choices; an epoch takes each question once.

    Args:
        lengths: tokens of the longest row of every question.
        counts: choices of every question.
        batch_size: questions in a batch.
        shuffle: see `Choices`.
        seed: of all orders.
        rank, world_size: this process and how many there are.

    Raises:
        DataError: there is nothing to train on.
    """

    def __init__(
        self,
        *,
        lengths: Sequence[int],
        counts: Sequence[int],
        batch_size: int,
        shuffle: bool = True,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if not len(lengths):
            raise DataError("data.train_choices: there is nothing to train on")
        self.lengths, self.members = np.asarray(lengths), by_count(counts)
        self.batch_size, self.shuffle, self.seed = batch_size, shuffle, seed
        self.rank, self.world_size, self.epoch = rank, world_size, 0
        self.total = sum(-(-len(of_count) // batch_size) for of_count in self.members.values())

    def set_epoch(self, epoch: int) -> None:
        """Lightning calls this at the start of every epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.total // self.world_size

    def __iter__(self) -> Iterator[BatchIndex]:
        if self.total < self.world_size:
            raise DataError(
                f"an epoch has {self.total} batches, too few for {self.world_size} processes; "
                "lower data.choices.batch_size"
            )
        batches = self._shuffled() if self.shuffle else self._in_order()
        for i in range(self.rank, len(self) * self.world_size, self.world_size):
            yield BatchIndex((), (), tuple(batches[i]))

    def _shuffled(self) -> list[list[int]]:
        rng = np.random.default_rng([self.seed, self.epoch])
        batches = [
            [of_count[i] for i in batch]
            for of_count in self.members.values()
            for batch in length_bucketed(self.lengths[of_count], self.batch_size, rng)
        ]
        return shuffled(batches, self.lengths, rng, self.world_size)

    def _in_order(self) -> list[list[int]]:
        return [
            of_count[at : at + self.batch_size]
            for of_count in self.members.values()
            for at in range(0, len(of_count), self.batch_size)
        ]


def choice_train_set(
    sources: Sequence[str], how: Choices, tokenizer: Any, architecture: str, seed: int
) -> ChoiceSet | None:
    """The questions of all sources, and what the probes make of them; None where no source is named.

    Raises:
        DataError: they cannot be read, or a probe finds no texts for one of them.
    """
    if not sources:
        return None
    examples = [example for source in sources for example in read_multiple_choice(source)]
    examples = examples[: how.limit_train or None]
    perturbed, followers = with_probes(examples, how.probe_training, how.probe_share, seed)
    return ChoiceSet([*examples, *perturbed], tokenizer, how.encoding, architecture, followers=followers)


def choice_eval_sets(
    sources: Mapping[str, str], how: Choices, tokenizer: Any, architecture: str
) -> list[EvalSet]:
    """The questions of every named source. DataError where they cannot be read."""
    return [
        EvalSet(
            name,
            ChoiceSet(
                read_multiple_choice(source)[: how.limit_val or None], tokenizer, how.encoding, architecture
            ),
        )
        for name, source in sources.items()
    ]


def choice_order(data: ChoiceSet, how: Choices, seed: int, rank: int, world_size: int) -> ChoiceSampler:
    """The batches of an epoch for one process."""
    return ChoiceSampler(
        lengths=data.lengths,
        counts=data.counts,
        batch_size=how.batch_size,
        shuffle=how.shuffle,
        seed=seed,
        rank=rank,
        world_size=world_size,
    )


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
            added.append(example)
    return added, followers
