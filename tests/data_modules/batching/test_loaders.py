"""A loader that goes on: what comes is what an undisturbed reader would have got next."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch.utils.data import Dataset

from data_modules.batching.data_module import BatchIndex, EpochSampler, ResumableLoader, outlive_signal

BATCHES = 7


class Echo(Dataset):
    """Returns its index as a text."""

    def __getitem__(self, index: Any) -> str:
        return str(index)


def draw(rng: np.random.Generator) -> list[BatchIndex]:
    """Batches that tell their epoch by the numbers of its generator."""
    epoch = int(rng.integers(1 << 30))
    return [BatchIndex((epoch,), (i,)) for i in range(BATCHES)]


def expected(epoch: int) -> list[str]:
    return [str(index) for index in draw(np.random.default_rng([0, epoch]))]


def loader(workers: int) -> ResumableLoader:
    options: Any = {"num_workers": workers, "persistent_workers": workers > 0, "batch_size": None}
    return ResumableLoader(Echo(), sampler=EpochSampler(draw), worker_init_fn=outlive_signal, **options)


def epoch_of(made: ResumableLoader, epoch: int) -> Any:
    """An iterator as Lightning makes it: before it tells the sampler of the epoch."""
    batches = iter(made)
    made.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
    return batches


@pytest.mark.parametrize(("taken", "workers"), [(0, 0), (1, 0), (BATCHES - 1, 0), (BATCHES, 0), (3, 2)])
def test_nothing_is_repeated_or_left_out_nor_counted_before_it_is_taken(taken: int, workers: int) -> None:
    first = loader(workers)
    before = epoch_of(first, 3)
    seen = [next(before) for _ in range(taken)]
    state = first.state_dict()
    assert state == {"consumed": taken}

    second = loader(workers)
    second.load_state_dict(state)
    assert len(second) == BATCHES
    rest = list(epoch_of(second, 3))  # all taken: the next epoch is whole
    assert seen + rest == expected(3) * (1 if taken < BATCHES else 2)
    assert second.state_dict() == {"consumed": BATCHES}
    assert list(epoch_of(second, 4)) == expected(4)
