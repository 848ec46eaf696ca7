"""Batches in equal shares, whole questions, and ranks that share the work without overlap."""

from collections import Counter
from functools import partial
from itertools import chain
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interventune.data_modules.batching import data_module
from interventune.data_modules.batching.candidates import ChoiceSet
from interventune.data_modules.batching.data_module import BatchIndex, EpochSampler
from interventune.data_modules.batching.sets import QASet
from interventune.data_modules.choices_data import ChoicesDataModule, choice_batches
from interventune.data_modules.encoding.windows import sorted_batches
from interventune.data_modules.groups_data import group_batches
from interventune.data_modules.questions_data import question_batches
from interventune.storage.documents import DataError

WINDOWS = st.lists(st.integers(1, 400), min_size=1, max_size=5)


def batches_of(
    classes: list[int], lengths: list[int], epoch: int = 0, rank: int = 0, **options: int
) -> list[BatchIndex]:
    """An epoch of groups, questions, or both, as the DataModules compose them."""
    of = {"per_class": 2, "qa_every": 1, "world_size": 1} | options
    how: Any = {"batch_size": 4, "world_size": of["world_size"], "order": "similar_length"}
    draw: Any = partial(question_batches, lengths_N=np.array(lengths), **how) if lengths else None
    if classes:
        draw = partial(group_batches, class_N=np.array(classes), questions=draw, **of)
    sampler = EpochSampler(draw, 0, rank, of["world_size"])
    sampler.set_epoch(epoch)
    return list(sampler)


@pytest.mark.parametrize("order", ["similar_length", "random"])
@given(lengths=st.lists(st.integers(1, 400), min_size=1, max_size=60), size=st.integers(1, 9))
def test_an_epoch_takes_every_question_once(lengths: list[int], size: int, order: Any) -> None:
    draw = np.random.default_rng(0), np.array(lengths), size, 1, order
    batches = [batch.qa for batch in question_batches(*draw)]
    assert sorted(chain(*batches)) == [*range(len(lengths))]
    assert sum(len(batch) < size for batch in batches) <= 1


@given(classes=st.lists(st.integers(0, 3), min_size=1, max_size=50), share=st.integers(1, 5))
def test_an_epoch_takes_every_group_and_spreads_the_classes(classes: list[int], share: int) -> None:
    batches = batches_of(classes, [], per_class=share)
    size = share * len(present := sorted(set(classes)))
    assert len(batches) == -(-len(classes) // size)
    seen = Counter(g for batch in batches for g in batch.groups)
    assert set(seen) == set(range(len(classes)))
    assert sum(seen.values()) - len(seen) == -len(classes) % size  # to fill the last batch
    every = Counter(classes[g] for g in seen.elements())
    taken: Counter[int] = Counter()
    for i, batch in enumerate(batches):
        of = [classes[g] for g in batch.groups]
        assert (len(of), of, batch.qa) == (size, sorted(of), ())
        taken.update(of)
        for c in present:  # as much of each class as of all groups
            assert abs(taken[c] - (i + 1) / len(batches) * every[c]) < len(present)


@pytest.mark.parametrize("sizes", [(3, 5, 4), (17, 16, 15), (256,) * 3])
def test_steps_are_those_of_leis_authors(sizes: tuple[int, int, int]) -> None:
    """Three quarters of N questions, in groups of four; sizes: of the authors' files."""
    questions = 16 * sum(sizes) // 3
    batches = batches_of(np.repeat(range(3), sizes).tolist(), [30] * 50, per_class=1)
    assert len(batches) == questions // 16
    assert {(4 * len(batch.groups), len(batch.qa)) for batch in batches} <= {(12, 4), (12, 2)}


@given(
    classes=st.lists(st.integers(0, 2), max_size=40),
    lengths=st.lists(st.integers(1, 99), max_size=40),
    every=st.integers(1, 3),
    world_size=st.integers(1, 4),
)
def test_ranks_in_turn(classes: list[int], lengths: list[int], every: int, world_size: int) -> None:
    if not classes and not lengths:
        return
    batches = partial(batches_of, classes, lengths, qa_every=every, epoch=2)
    whole = batches()
    times = np.bincount([window for batch in whole for window in batch.qa], minlength=len(lengths))
    assert not lengths or np.ptp(times) <= 1
    if len(whole) < world_size:
        with pytest.raises(DataError, match=f"too few for {world_size} processes"):
            batches(world_size=world_size)
        return
    parts = [batches(rank=rank, world_size=world_size) for rank in range(world_size)]
    steps = list(zip(*parts, strict=True))
    together = [batch for step in steps for batch in step]
    assert len(steps) == len(whole) // world_size
    for batch, alone in zip(together, whole, strict=False):
        assert batch.groups == alone.groups
    for i, step in enumerate(steps):  # questions take part on all processes of a step or on none
        takes_part = bool(lengths) and (not classes or i % every == 0)
        assert {bool(batch.qa) for batch in step} == {takes_part}
    if not classes:
        windows = [window for batch in together for window in batch.qa]
        assert len(set(windows)) == len(windows) >= len(lengths) - 4 * (world_size - 1)


@given(windows=st.lists(WINDOWS, min_size=1, max_size=25), size=st.integers(1, 12))
def test_evaluation_splits_no_question(windows: list[list[int]], size: int) -> None:
    data = QASet.__new__(QASet)
    data.lengths = np.array([length for question in windows for length in question])
    examples = [i for i, question in enumerate(windows) for _ in question]
    data.first_Q = np.unique(examples, return_index=True)[1]
    batches = data.batches(size)
    assert sorted(chain(*batches)) == [*range(len(examples))]
    asked = [{examples[i] for i in batch} for batch in batches]
    assert sum(map(len, asked)) == len(windows)
    assert 0 < max(map(len, batches)) < size + max(map(len, windows))


@pytest.mark.parametrize(("n", "size", "ranks"), [(13, 64, 2), (13, 8, 2), (8, 64, 8)])
def test_no_rank_is_idle(n: int, size: int, ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sets = {"val": [("main", SimpleNamespace(batches=partial(sorted_batches, [5] * n)))]}
    module: Any = SimpleNamespace(eval_sets=sets, eval_batch_size=size, loader_options={})

    def share(rank: int, world_size: int) -> Any:
        monkeypatch.setattr(data_module, "process_rank", lambda: (rank, world_size))
        return data_module.TextDataModule.eval_loaders(module, "val")[0].sampler

    shares = [share(rank, ranks) for rank in range(ranks)]
    assert all(shares)
    assert sorted(chain(*chain(*shares))) == [*range(n)]
    with pytest.raises(DataError, match="no set to val"):
        share(0, n + 1)


@given(st.lists(st.integers(2, 5), min_size=1, max_size=50), st.booleans(), st.integers(1, 30))
def test_batches_of_choices_take_each_question_once(of: list[int], shuffle: bool, n: int) -> None:
    data = ChoiceSet.__new__(ChoiceSet)
    data.counts, data.lengths = np.array(of), np.array([7 * i % 13 for i in range(len(of))])
    rng = np.random.default_rng(n)
    drawn = choice_batches(rng, data.counts, data.lengths, batch_size=2, shuffle=shuffle)
    for batches in (drawn, evaluated := data.batches(n)):
        assert sorted(chain(*batches)) == [*range(len(of))]
        assert all(len({of[i] for i in batch}) == 1 for batch in batches)
    assert all(len(batch) == 1 or len(batch) * of[batch[0]] <= n for batch in evaluated)
    if not shuffle:  # as in their file: the authors' loader
        assert [*chain(*drawn)] == sorted(range(len(of)), key=lambda i: (of[i], i))


def test_limits_cut_what_all_sources_hold_together() -> None:
    dev = "stories:choices_dev"
    sources: Any = {"train_choices": [dev, f"{dev}?seed=1"], "val_choices": {"main": dev}}
    limits: Any = {"limit_train": 310, "limit_val": 7}
    data = ChoicesDataModule(tokenizer="stories", architecture="bert", **sources, **limits)
    data.setup("fit")
    assert len(data.train_set.questions) == 310
    assert [len(named.data.questions) for named in data.eval_sets["val"]] == [7]
