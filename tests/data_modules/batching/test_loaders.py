"""A loader that goes on: what comes is what an undisturbed reader would have got next."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import Dataset, Sampler

from data_modules.batching.loaders import FromBatch, ResumableLoader, outlive_first_signal

BATCHES = 7


class Echo(Dataset):
    """Returns its index, as data sets that build whole batches do."""

    def __getitem__(self, index: Any) -> Any:
        return index


class ByEpoch(Sampler):
    """epoch.number"""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return BATCHES

    def __iter__(self) -> Any:
        return iter([f"{self.epoch}.{i}" for i in range(BATCHES)])


def loader(workers: int = 0) -> ResumableLoader:
    return ResumableLoader(
        Echo(),
        sampler=FromBatch(ByEpoch()),
        batch_size=None,
        num_workers=workers,
        persistent_workers=workers > 0,
        worker_init_fn=outlive_first_signal,
    )


def epoch_of(made: ResumableLoader, epoch: int) -> Any:
    """An iterator as Lightning makes it: before it tells the sampler of the epoch."""
    batches = iter(made)
    made.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
    return batches


def check(taken: int, workers: int) -> None:
    first = loader(workers)
    before = epoch_of(first, 3)
    seen = [next(before) for _ in range(taken)]
    state = first.state_dict()
    assert state == {"consumed": taken}

    second = loader(workers)
    second.load_state_dict(state)
    assert len(second) == BATCHES
    rest = list(epoch_of(second, 3))
    complete = [f"3.{i}" for i in range(BATCHES)]
    assert seen + rest == (
        complete if taken < BATCHES else complete * 2
    )  # all taken: the next epoch is whole
    assert second.state_dict() == {"consumed": BATCHES}
    assert list(epoch_of(second, 4)) == [f"4.{i}" for i in range(BATCHES)]


@given(st.integers(0, BATCHES))
def test_nothing_is_repeated_or_left_out(taken: int) -> None:
    check(taken, 0)


@pytest.mark.parametrize("taken", [0, 3])
def test_what_workers_hold_ready_does_not_count(taken: int) -> None:
    check(taken, 2)
