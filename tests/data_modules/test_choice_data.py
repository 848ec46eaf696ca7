"""Orders of an epoch of multiple-choice questions, and what probes add to them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.batching.choice_set import by_count
from data_modules.batching.samplers import EpochSampler
from data_modules.choices_data import Choices, ChoicesDataModule, choice_batches, with_probes
from data_modules.schema import ChoiceQuestion
from data_modules.sources import read_choices
from storage.errors import DataError

counts = st.lists(st.integers(2, 4), min_size=1, max_size=50)


def sampler(
    of: list[int], *, seed: int = 0, rank: int = 0, world_size: int = 1, **options: Any
) -> EpochSampler:
    lengths = np.array([7 * i % 13 + 1 for i in range(len(of))])
    how = {"lengths_Q": lengths, "members": by_count(of), "batch_size": 4, "world_size": world_size} | options
    return EpochSampler(partial(choice_batches, **how), seed=seed, rank=rank, world_size=world_size)


@given(counts, st.booleans(), st.integers(0, 3))
def test_an_epoch_takes_each_question_once(of: list[int], shuffle: bool, epoch: int) -> None:
    order = sampler(of, shuffle=shuffle)
    order.set_epoch(epoch)
    batches = [index.choices for index in order]
    assert len(batches) == len(order)
    assert sorted(i for batch in batches for i in batch) == list(range(len(of)))
    assert all(len({of[i] for i in batch}) == 1 for batch in batches)


@given(st.integers(8, 60), st.integers(2, 3))
def test_processes_share_the_batches_of_one(questions: int, processes: int) -> None:
    of = [2] * questions
    parts = [list(sampler(of, rank=r, world_size=processes, batch_size=2)) for r in range(processes)]
    assert len({len(part) for part in parts}) == 1
    taken = [i for part in parts for index in part for i in index.choices]
    assert len(taken) == len(set(taken)) > questions - 2 * processes


def test_without_shuffling_questions_come_as_in_their_file() -> None:
    """The authors' loader (probes spec B1)."""
    order = sampler([2] * 10, shuffle=False)
    order.set_epoch(3)
    assert [i for index in order for i in index.choices] == list(range(10))


QUESTIONS = read_choices("stories:choices_dev")[:40]


@pytest.mark.parametrize("share", [1.0, 0.25])
def test_probes_follow_their_originals(share: float) -> None:
    added, followers = with_probes(QUESTIONS, ["no_question", "no_right_answer"], share, 3)
    assert len(added) == 2 * round(share * 40)
    assert sum(map(len, followers)) == len(added)
    for original, behind in zip(QUESTIONS, followers, strict=True):
        for at in behind:
            made: ChoiceQuestion = added[at - 40]
            assert (made.id, made.target, made.label) == (original.id, "uniform", original.label)
            assert len(made.choices) == len(original.choices)
            assert made.donors if made.probe == "no_right_answer" else made.prompt == ""
    assert with_probes(QUESTIONS, ["no_question", "no_right_answer"], share, 3) == (added, followers)
    if share < 1:
        assert (
            with_probes(QUESTIONS, ["no_question"], share, 4)[1]
            != with_probes(QUESTIONS, ["no_question"], share, 3)[1]
        )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch_size": 0}, r"data\.choices\.batch_size"),
        ({"limit_val": -1}, r"data\.choices\.limit_val"),
        ({"probe_share": 0.0}, r"data\.choices\.probe_share"),
        ({"probe_training": ["no_question", "no_question"]}, "names a probe twice"),
    ],
)
def test_options_that_cannot_work(options: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        Choices(**options)


def test_limits() -> None:
    data = ChoicesDataModule(
        tokenizer="stories",
        architecture="bert",
        train_choices=["stories:choices_dev", "stories:choices_dev?seed=1"],
        val_choices={"main": "stories:choices_dev"},
        choices=Choices(limit_train=310, limit_val=7, probe_training=["no_question"]),
    )
    data.setup("fit")
    assert data.train_set is not None
    assert data.train_set.choices is not None
    assert len(data.train_set.choices) == 310
    assert len(data.train_set.choices.table) == 620
    assert [len(named.data) for named in data.eval_sets["val"]] == [7]
