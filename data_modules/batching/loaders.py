"""Data loaders: one that goes on in the middle of an epoch, one for each evaluation set; workers that outlive
the signals of a stop."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from typing import Any

from torch.utils.data import DataLoader

from data_modules.batching.eval_sets import EvalSet
from data_modules.batching.group_rows import GroupSet
from data_modules.batching.samplers import EpochSampler, EvalSampler, enough_batches
from data_modules.batching.sets import TrainSet
from data_modules.encoding.tables import process_rank
from storage.errors import DataError


class ResumableLoader(DataLoader):
    """A DataLoader over an `EpochSampler` that knows how many batches its reader has taken.

    Batches that workers hold ready do not count, so that a state that is saved at any moment names the first
    batch that was not trained on. Lightning keeps the state in its checkpoints. An epoch begins when its
    first batch is asked for: earlier, the sampler would not know yet which epoch it is.
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
        start, self._start = self._start, 0
        return self._batches(start)

    def _batches(self, start: int) -> Iterator[Any]:
        assert isinstance(self.sampler, EpochSampler)
        self.consumed = self.sampler.start = start if start < len(self) else 0
        for batch in super().__iter__():
            self.consumed += 1
            yield batch


def train_loader(data: TrainSet, sampler: EpochSampler, num_workers: int) -> ResumableLoader:
    """The loader of training batches, which the set builds as the sampler names them."""
    return ResumableLoader(data, sampler=sampler, batch_size=None, **_options(num_workers))


def _options(num_workers: int) -> dict[str, Any]:
    return {
        "num_workers": num_workers,
        "pin_memory": True,
        "persistent_workers": num_workers > 0,
        "worker_init_fn": outlive_first_signal,
    }


def eval_loaders(sets: Sequence[EvalSet], rows: int, num_workers: int, options: str) -> list[DataLoader]:
    """A loader for every set, with this process's share of its batches of `rows` rows; `options` name the
    sets.

    Raises:
        DataError: no set has a batch for each process.
    """
    rank, world_size = process_rank()
    shared = [
        enough_batches(data.batches, max(1, rows // 4) if isinstance(data, GroupSet) else rows, world_size)
        for _, data in sets
    ]
    if sets and all(len(batches) < world_size for batches in shared):
        raise DataError(
            f"{options}: no set has something for each of {world_size} processes; take fewer "
            "(trainer.devices)"
        )
    return [
        DataLoader(
            data,
            sampler=EvalSampler(batches, rank=rank, world_size=world_size),
            batch_size=None,
            **_options(num_workers),
        )
        for (_, data), batches in zip(sets, shared, strict=True)
    ]


def outlive_first_signal(worker: int) -> None:
    """Let a worker process live on when a cluster or Ctrl-C tells all processes to stop: the main process
    finishes its step first, and then ends its workers itself (`worker_init_fn` of a DataLoader).

    A second SIGTERM ends the worker: the main process sends one to those that do not stop by themselves.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: signal.signal(signal.SIGTERM, signal.SIG_DFL))
