"""Orders of an epoch of multiple-choice questions."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from data_modules.choices_data import ChoicesDataModule, choice_batches

DATA = ChoicesDataModule(
    tokenizer="stories",
    architecture="bert",
    train_choices=["stories:choices_dev", "stories:choices_dev?seed=1"],
    val_choices={"main": "stories:choices_dev"},
    batch_size=2,
    limit_train=310,
    limit_val=7,
)


@given(st.lists(st.integers(2, 4), min_size=1, max_size=50), st.booleans(), st.integers(0, 3))
def test_an_epoch_takes_each_question_once(of: list[int], shuffle: bool, epoch: int) -> None:
    lengths = np.array([7 * i % 13 + 1 for i in range(len(of))])
    rng = np.random.default_rng([0, epoch])
    batches = choice_batches(rng, np.array(of), lengths, batch_size=2, shuffle=shuffle)
    taken = [i for batch in batches for i in batch]
    assert sorted(taken) == list(range(len(of)))
    assert all(len({of[i] for i in batch}) == 1 for batch in batches)
    if not shuffle:  # as in their file: the authors' loader (probes spec B1)
        assert taken == sorted(taken, key=lambda i: (of[i], i))


def test_limits_cut_what_all_sources_hold_together() -> None:
    DATA.setup("fit")
    assert len(DATA.train_set) == 310
    assert [len(named.data) for named in DATA.eval_sets["val"]] == [7]
