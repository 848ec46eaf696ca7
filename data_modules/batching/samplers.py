"""Which questions and groups make up each batch, and the loader that goes on in the middle of an epoch.

Every order is a pure function of (seed, epoch, number of ranks), the same on all ranks; rank r of W takes
batches r, r + W, ...
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from itertools import chain, count, repeat
from typing import Any, Literal, NamedTuple

import numpy as np
import torch.distributed as dist
from torch.utils.data import DataLoader, Sampler

from storage.errors import DataError

POOL = 50
"""Batches within which lengths are sorted."""


class BatchIndex(NamedTuple):
    """Indices of the groups and question windows of one training batch."""

    groups: tuple[int, ...] = ()
    qa: tuple[int, ...] = ()


Draw = Callable[[np.random.Generator], list[Any]]
"""Makes all batches of an epoch, as indices, out of a random generator; as many in every epoch."""


def cut(index: list[int], size: int) -> list[list[int]]:
    """Parts of `size`; the last may be smaller."""
    return [index[at : at + size] for at in range(0, len(index), size)]


def length_bucketed(
    lengths_N: np.ndarray, batch_size: int, rng: np.random.Generator, world_size: int = 1
) -> list[list[int]]:
    """Batches of similar length: shuffle, sort within pools of batches, cut, shuffle again. So are each
    `world_size` of them, which as many processes take at the same time. What is not enough for all processes
    is drawn at random, and comes last.
    """
    order_N, together = rng.permutation(len(lengths_N)), batch_size * world_size
    spare_N, order_N = np.split(order_N, [-(-len(order_N) // batch_size) % world_size * batch_size])
    steps: list[list[int]] = []
    for pool in cut(order_N.tolist(), together * POOL):
        steps += cut(sorted(pool, key=lengths_N.__getitem__), together)
    ordered = [steps[i] for i in rng.permutation(len(steps))]
    return [batch for step in [*ordered, spare_N.tolist()] for batch in cut(step, batch_size)]


def question_batches(
    rng: np.random.Generator,
    lengths_N: np.ndarray,
    *,
    batch_size: int,
    order: Literal["similar_length", "random"] = "similar_length",
    world_size: int = 1,
) -> list[BatchIndex]:
    """An epoch of question windows, each once: those of similar length share a batch, or any."""
    if order == "random":
        drawn = cut(rng.permutation(len(lengths_N)).tolist(), batch_size)
    else:
        drawn = length_bucketed(lengths_N, batch_size, rng, world_size)
    return [BatchIndex(qa=tuple(batch)) for batch in drawn]


def group_batches(
    rng: np.random.Generator,
    class_N: np.ndarray,
    per_class: int,
    questions: Draw | None = None,
    *,
    qa_every: int = 1,
    world_size: int = 1,
) -> list[BatchIndex]:
    """An epoch of groups, each once, as LEI's authors do (LEI spec 4.3): a batch holds `per_class` groups for
    each class that occurs, and every `qa_every` steps (of `world_size` processes) a batch of questions."""
    batches = []
    turn = chain.from_iterable(questions(rng) for _ in count()) if questions else repeat(BatchIndex())
    for i, batch in enumerate(by_class(rng, class_N, per_class)):
        groups = tuple(batch[np.argsort(class_N[batch], kind="stable")].tolist())
        batches.append(BatchIndex(groups, next(turn).qa if i // world_size % qa_every == 0 else ()))
    return batches


def by_class(rng: np.random.Generator, class_N: np.ndarray, per_class: int) -> list[np.ndarray]:
    """Batches with the classes spread as evenly as they go: of classes of equal size every batch holds the
    same number. What is missing in the last batch comes from the smallest classes, reshuffled."""
    members = [np.flatnonzero(class_N == c) for c in np.unique(class_N)]
    size, need_K = per_class * len(members), [len(of_class) for of_class in members]
    for _ in range(-len(class_N) % size):
        need_K[int(np.argmin(need_K))] += 1
    orders, places = [], []
    for of_class, need in zip(members, need_K, strict=True):
        rounds = -(-need // len(of_class))
        orders.append(np.concatenate([rng.permutation(of_class) for _ in range(rounds)])[:need])
        places.append((np.arange(need) + 0.5) / need)
    order_N = np.concatenate(orders)[np.argsort(np.concatenate(places), kind="stable")]
    return list(order_N.reshape(-1, size))


class EpochSampler(Sampler[Any]):
    """The batches of one process, epoch by epoch; it can `start` in the middle of one.

    DataError where there are fewer batches than processes.
    """

    def __init__(self, draw: Draw, *, seed: int = 0, rank: int = 0, world_size: int = 1) -> None:
        self.draw, self.seed, self.rank, self.world_size = draw, seed, rank, world_size
        self.epoch = self.start = 0
        total = len(draw(np.random.default_rng([seed, 0])))
        self.batches = total // world_size
        if not self.batches:
            raise DataError(f"an epoch has {total} batches, too few for {world_size} processes")

    def set_epoch(self, epoch: int) -> None:
        """Lightning calls this at the start of every epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        """Batches of a full epoch, wherever this one starts."""
        return self.batches

    def __iter__(self) -> Iterator[Any]:
        every = self.draw(np.random.default_rng([self.seed, self.epoch]))
        yield from every[self.rank : self.batches * self.world_size : self.world_size][self.start :]


class ResumableLoader(DataLoader):
    """A DataLoader over an `EpochSampler` that knows how many batches its reader has taken: those that
    workers hold ready do not count. Lightning keeps the state in its checkpoints.

    An epoch begins when its first batch is asked for: earlier, the sampler does not know which epoch it is.
    """

    consumed = 0
    _start = 0

    def state_dict(self) -> dict[str, int]:
        """Batches of this epoch that were handed out."""
        return {"consumed": self.consumed}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Let the next epoch begin after as many batches; at its beginning, where that was all of them."""
        self._start = self.consumed = state["consumed"]

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # only next() is asked of it
        assert isinstance(self.sampler, EpochSampler)
        start, self._start = self._start, 0
        self.consumed = self.sampler.start = start if start < self.sampler.batches else 0
        for batch in super().__iter__():
            self.consumed += 1
            yield batch


def outlive_signal(worker: int) -> None:
    """`worker_init_fn` of a DataLoader: a worker lives on when a cluster or Ctrl-C tells all processes to
    stop. The main process finishes its step first, and ends its workers, if need be by a second SIGTERM."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: signal.signal(signal.SIGTERM, signal.SIG_DFL))


def process_rank() -> tuple[int, int]:
    """The rank of this process and how many there are; (0, 1) where it is alone."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1
