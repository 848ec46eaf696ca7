"""Which questions and groups make up each batch.

Every order is a pure function of (seed, epoch, number of ranks), the same on all ranks; rank r of W then
takes batches r, r + W, ... so that no group is ever split and evaluation counts each example once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from torch.utils.data import Sampler

from storage.errors import DataError


class BatchIndex(NamedTuple):
    """Indices of the groups, of the QA windows and of the multiple-choice questions of one training batch."""

    groups: tuple[int, ...]
    qa: tuple[int, ...]
    choices: tuple[int, ...] = ()


def length_bucketed(
    lengths: Sequence[int] | np.ndarray,
    batch_size: int,
    rng: np.random.Generator,
    pool: int = 50,
    together: int = 1,
) -> list[list[int]]:
    """Shuffled batches of similar length: shuffle, sort within pools of `pool` batches, cut, shuffle again.

    The last batch may be smaller. For `together`, see `shuffled`.
    """
    order = rng.permutation(len(lengths))
    size = np.asarray(lengths)
    batches: list[list[int]] = []
    for at in range(0, len(order), batch_size * pool):
        chunk = order[at : at + batch_size * pool]
        chunk = chunk[np.argsort(size[chunk], kind="stable")]
        batches += [chunk[i : i + batch_size].tolist() for i in range(0, len(chunk), batch_size)]
    return shuffled(batches, size, rng, together)


def token_bucketed(
    lengths: Sequence[int] | np.ndarray,
    max_tokens: int,
    multiple: int,
    rng: np.random.Generator,
    together: int = 1,
) -> list[list[int]]:
    """Shuffled batches of as many rows of similar length as fit into `max_tokens`, padding counted.

    Rows that are padded to the same multiple make up a bucket, whose batches have one size; what is left over
    in the buckets is brought together. So the number of batches is the same in every epoch.

    Raises:
        DataError: a single row has more tokens.
    """
    padded = -(-np.asarray(lengths) // multiple) * multiple
    if len(padded) and padded.max() > max_tokens:
        raise DataError(
            f"data.qa_batch_tokens: {max_tokens} tokens cannot hold a window of {padded.max()}; raise it, or "
            "lower data.encoding.max_length"
        )
    batches: list[list[int]] = []
    rest: list[int] = []
    for width in np.unique(padded):
        members = rng.permutation(np.flatnonzero(padded == width))
        size = max_tokens // int(width)
        whole = len(members) // size * size
        batches += members[:whole].reshape(-1, size).tolist()
        rest += members[whole:].tolist()
    mixed: list[int] = []
    for row in rest:  # in the order of their widths
        if (len(mixed) + 1) * padded[row] > max_tokens:
            batches.append(mixed)
            mixed = []
        mixed.append(row)
    return shuffled([*batches, mixed] if mixed else batches, padded, rng, together)


def shuffled(
    batches: list[list[int]], lengths: np.ndarray, rng: np.random.Generator, together: int
) -> list[list[int]]:
    """Batches in random order, but so that each `together` of them, which as many processes take at the same
    time, are of similar length: nobody waits for somebody else's long batch."""
    if together > 1:
        longest = [max(lengths[batch]) for batch in batches]
        # Drawn at random before sorting: what is left over at the end is not always the longest.
        order = rng.permutation(len(batches))
        spare = order[: len(batches) % together]
        kept = order[len(spare) :]
        kept = kept[np.argsort(np.asarray(longest)[kept], kind="stable")]
        units = kept.reshape(-1, together)
        rows = [*units[rng.permutation(len(units))].ravel(), *spare]
        return [batches[i] for i in rows]
    return [batches[i] for i in rng.permutation(len(batches))]


def sorted_batches(lengths: Sequence[int], batch_size: int) -> list[list[int]]:
    """Every index once, longest first (memory trouble shows at once), similar lengths together."""
    order = np.argsort(-np.asarray(lengths), kind="stable")
    return [order[i : i + batch_size].tolist() for i in range(0, len(order), batch_size)]


def enough_batches(
    batches_of: Callable[[int], list[list[int]]], size: int, processes: int
) -> list[list[int]]:
    """`batches_of(size)`, or smaller batches until each process gets one (or none can be made smaller).

    Lightning leaves out the whole evaluation on a process that has no batch of any set, and the others would
    wait for its sums.
    """
    batches = batches_of(size)
    while len(batches) < processes and size > 1:
        size //= 2
        batches = batches_of(size)
    return batches


class TrainSampler(Sampler[BatchIndex]):
    """Batches of whole groups in equal shares of their classes, with a share of QA windows.

    An epoch passes once over the largest class of groups (smaller classes repeat, reshuffled); without
    groups, once over the QA windows. Batches that processes take at the same time have similar lengths.

    Args:
        group_classes: class of every group.
        qa_lengths: tokens of every QA window.
        groups_per_class: groups of each class that occurs, in every batch.
        qa_batch_size: QA windows in a batch that has any.
        qa_batch_tokens: instead, as many as fit into so many tokens; 0: `qa_batch_size` it is.
        pad_to_multiple_of: what lengths of batches are rounded up to.
        qa_every: every how many steps QA windows take part.
        seed: of all orders.
        rank, world_size: this process and how many there are.

    Raises:
        DataError: there is nothing to train on, or a size is below 1.
    """

    def __init__(
        self,
        *,
        group_classes: Sequence[int],
        qa_lengths: Sequence[int],
        groups_per_class: int,
        qa_batch_size: int,
        qa_batch_tokens: int = 0,
        pad_to_multiple_of: int = 1,
        qa_every: int = 1,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        classes = np.asarray(group_classes, dtype=np.int64)
        self.members = [np.flatnonzero(classes == c) for c in np.unique(classes)]
        self.qa_lengths = np.asarray(qa_lengths, dtype=np.int64)
        if not self.members and not len(qa_lengths):
            raise DataError("data.train_qa, data.train_groups: name something to train on")
        self.groups_per_class, self.qa_batch_size, self.qa_every = groups_per_class, qa_batch_size, qa_every
        for name in ("groups_per_class", "qa_batch_size", "qa_every"):
            if getattr(self, name) < 1:
                raise DataError(f"data.{name} must be at least 1, got {getattr(self, name)}")
        if qa_batch_tokens < 0:
            raise DataError(f"data.qa_batch_tokens must not be negative, got {qa_batch_tokens}")
        self.qa_batch_tokens, self.multiple = qa_batch_tokens, pad_to_multiple_of
        self.seed, self.rank, self.world_size, self.epoch = seed, rank, world_size, 0
        self.total = self._total()

    def set_epoch(self, epoch: int) -> None:
        """Lightning calls this at the start of every epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.total // self.world_size

    def _total(self) -> int:
        if self.members:
            return -(-max(len(m) for m in self.members) // self.groups_per_class)
        if self.qa_batch_tokens:  # as many in every epoch
            return len(self._qa_round(np.random.default_rng(self.seed)))
        return -(-len(self.qa_lengths) // self.qa_batch_size)

    def __iter__(self) -> Iterator[BatchIndex]:
        if self.total < self.world_size:
            raise DataError(
                f"an epoch has {self.total} batches, too few for {self.world_size} processes; "
                "lower the batch size"
            )
        rng = np.random.default_rng([self.seed, self.epoch])
        groups = self._group_batches(rng)
        qa = self._qa_batches(rng)
        for i in range(self.rank, len(self) * self.world_size, self.world_size):
            yield BatchIndex(groups[i] if groups else (), qa[i] if qa else ())

    def _group_batches(self, rng: np.random.Generator) -> list[tuple[int, ...]]:
        if not self.members:
            return []
        need = self.total * self.groups_per_class
        orders = []
        for members in self.members:
            rounds = -(-need // len(members))
            orders.append(np.concatenate([rng.permutation(members) for _ in range(rounds)])[:need])
        share = self.groups_per_class
        return [
            tuple(int(g) for order in orders for g in order[i * share : (i + 1) * share])
            for i in range(self.total)
        ]

    def _qa_batches(self, rng: np.random.Generator) -> list[tuple[int, ...]]:
        """For every batch of the epoch its windows; none in the steps in which questions do not take part."""
        if not len(self.qa_lengths):
            return []
        if not self.members:
            return [tuple(batch) for batch in self._qa_round(rng)]
        steps = -(-self.total // self.world_size)
        need = -(-steps // self.qa_every) * self.world_size
        batches: list[list[int]] = []
        while len(batches) < need:
            batches += self._qa_round(rng)
        turn = iter(batches)
        return [
            tuple(next(turn)) if i // self.world_size % self.qa_every == 0 else () for i in range(self.total)
        ]

    def _qa_round(self, rng: np.random.Generator) -> list[list[int]]:
        if self.qa_batch_tokens:
            return token_bucketed(self.qa_lengths, self.qa_batch_tokens, self.multiple, rng, self.world_size)
        return length_bucketed(self.qa_lengths, self.qa_batch_size, rng, together=self.world_size)


class EvalSampler(Sampler[list[int]]):
    """Every index exactly once over all ranks, in sorted batches, without padding the last one.

    Args:
        batches: index lists, the same on all ranks.
        rank, world_size: this process and how many there are.
    """

    def __init__(self, batches: Sequence[list[int]], *, rank: int = 0, world_size: int = 1) -> None:
        self.batches = batches[rank::world_size]

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.batches)
