"""Orders of an epoch of multiple-choice questions."""

from __future__ import annotations

from functools import partial

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from data_modules.batching.choice_set import by_count
from data_modules.batching.samplers import EpochSampler
from data_modules.choices_data import Choices, ChoicesDataModule, choice_batches


def sampler(of: list[int], *, shuffle: bool = True, rank: int = 0, world_size: int = 1) -> EpochSampler:
    """The batches of questions with so many choices."""
    lengths = np.array([7 * i % 13 + 1 for i in range(len(of))])
    choices = Choices(batch_size=2, shuffle=shuffle)
    draw = partial(choice_batches, lengths_Q=lengths, members=by_count(of), choices=choices)
    return EpochSampler(draw, rank=rank, world_size=world_size)


@given(st.lists(st.integers(2, 4), min_size=1, max_size=50), st.booleans(), st.integers(0, 3))
def test_an_epoch_takes_each_question_once(of: list[int], shuffle: bool, epoch: int) -> None:
    order = sampler(of, shuffle=shuffle)
    order.set_epoch(epoch)
    batches = list(order)
    taken = [i for batch in batches for i in batch]
    assert len(batches) == len(order)
    assert sorted(taken) == list(range(len(of)))
    assert all(len({of[i] for i in batch}) == 1 for batch in batches)
    if not shuffle:  # as in their file: the authors' loader (probes spec B1)
        assert taken == sorted(taken, key=lambda i: (of[i], i))


def test_limits_cut_what_all_sources_hold_together() -> None:
    data = ChoicesDataModule(
        tokenizer="stories",
        architecture="bert",
        train_choices=["stories:choices_dev", "stories:choices_dev?seed=1"],
        val_choices={"main": "stories:choices_dev"},
        choices=Choices(limit_train=310, limit_val=7),
    )
    data.setup("fit")
    assert len(data.train_set) == 310
    assert [len(named.data) for named in data.eval_sets["val"]] == [7]
