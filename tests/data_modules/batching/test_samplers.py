"""Batches in equal shares, whole questions, and ranks that share the work without overlap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.batching.samplers import (
    BatchIndex,
    EpochSampler,
    enough_batches,
    group_batches,
    length_bucketed,
    question_batches,
)
from data_modules.batching.sets import QASet, sorted_batches
from storage.errors import DataError

LENGTHS = st.lists(st.integers(1, 400), min_size=1, max_size=60)
CLASSES = st.lists(st.integers(0, 3), min_size=1, max_size=50)


def sampler(
    *,
    classes: list[int] | None = None,
    lengths: list[int] | None = None,
    per_class: int = 2,
    qa_every: int = 1,
    seed: int = 0,
    rank: int = 0,
    world_size: int = 1,
    **questions: int,
) -> EpochSampler:
    """Groups, questions, or both, as the DataModules compose them."""
    draw: Callable[[np.random.Generator], list[BatchIndex]] | None = None
    if lengths:
        sizes = {"batch_size": 4, "world_size": world_size} | questions
        draw = partial(question_batches, lengths_N=np.array(lengths), **sizes)
    if classes:
        share = {"per_class": per_class, "qa_every": qa_every, "world_size": world_size}
        draw = partial(group_batches, class_N=np.array(classes), questions=draw, **share)
    assert draw is not None
    return EpochSampler(draw, seed=seed, rank=rank, world_size=world_size)


@given(lengths=LENGTHS, size=st.integers(1, 9), pool=st.integers(1, 4), seed=st.integers(0, 99))
def test_bucketed_batches_are_a_permutation(lengths: list[int], size: int, pool: int, seed: int) -> None:
    batches = length_bucketed(lengths, size, np.random.default_rng(seed), pool)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    assert sum(len(batch) < size for batch in batches) <= 1
    assert batches == length_bucketed(lengths, size, np.random.default_rng(seed), pool)


@given(lengths=LENGTHS, size=st.integers(1, 9))
def test_sorted_batches_take_every_index_once_longest_first(lengths: list[int], size: int) -> None:
    order = [i for batch in sorted_batches(lengths, size) for i in batch]
    assert sorted(order) == list(range(len(lengths)))
    assert [lengths[i] for i in order] == sorted(lengths, reverse=True)
    assert sorted_batches([], size) == []


@given(classes=CLASSES, share=st.integers(1, 5), seed=st.integers(0, 99), epoch=st.integers(0, 5))
def test_an_epoch_takes_every_group_once_and_spreads_the_classes(
    classes: list[int], share: int, seed: int, epoch: int
) -> None:
    found = sampler(classes=classes, per_class=share, seed=seed)
    found.set_epoch(epoch)
    batches = list(found)
    present = sorted(set(classes))
    size = share * len(present)
    assert len(batches) == len(found) == -(-len(classes) // size)
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


@pytest.mark.parametrize(
    ("questions", "sizes", "steps"),
    [(64, (3, 5, 4), 4), (256, (17, 16, 15), 16), (1024, (64,) * 3, 64), (4096, (256,) * 3, 256)],
)
def test_steps_of_an_epoch_are_those_of_leis_authors(
    questions: int, sizes: tuple[int, int, int], steps: int
) -> None:
    """Three quarters of N questions, in groups of four; sizes: of the authors' files (LEI spec 3.3, 4.3)."""
    assert 4 * sum(sizes) == 3 * questions // 4
    for counts in (sizes, (sum(sizes) // 3,) * 3):  # theirs, and our samples
        classes = [c for c in range(3) for _ in range(counts[c])]
        batches = list(sampler(classes=classes, lengths=[30] * 50, per_class=1))
        assert len(batches) == steps == questions // 16
        assert {(4 * len(batch.groups), len(batch.qa)) for batch in batches} <= {(12, 4), (12, 2)}


@given(
    classes=st.lists(st.integers(0, 2), max_size=40),
    lengths=st.lists(st.integers(1, 99), max_size=40),
    every=st.integers(1, 3),
    world_size=st.integers(1, 4),
    epoch=st.integers(0, 3),
)
def test_ranks_divide_the_single_process_list(
    classes: list[int], lengths: list[int], every: int, world_size: int, epoch: int
) -> None:
    if not classes and not lengths:
        return

    def batches(rank: int, of: int) -> list[BatchIndex]:
        part = sampler(classes=classes, lengths=lengths, qa_every=every, seed=3, rank=rank, world_size=of)
        part.set_epoch(epoch)
        found = list(part)
        assert len(found) == len(part)
        return found

    whole = batches(0, 1)
    if len(whole) < world_size:
        with pytest.raises(DataError, match=f"too few for {world_size} processes"):
            batches(0, world_size)
        return
    parts = [batches(rank, world_size) for rank in range(world_size)]
    assert {len(part) for part in parts} == {len(whole) // world_size}
    together = [batch for step in zip(*parts, strict=True) for batch in step]
    assert [batch.groups for batch in together] == [batch.groups for batch in whole[: len(together)]]
    for i, step in enumerate(zip(*parts, strict=True)):
        # Questions take part on all processes of a step or on none.
        assert {bool(batch.qa) for batch in step} == {bool(lengths) and (not classes or i % every == 0)}
    if not classes:
        windows = [window for batch in together for window in batch.qa]
        assert len(set(windows)) == len(windows) >= len(lengths) - 4 * (world_size - 1)


def test_processes_get_batches_of_similar_length_at_the_same_time() -> None:
    lengths = np.random.default_rng(0).integers(10, 400, 2000).tolist()
    parts = [list(sampler(lengths=lengths, batch_size=16, rank=rank, world_size=4)) for rank in range(4)]
    longest = [[max(lengths[i] for i in batch.qa) for batch in part] for part in parts]
    assert np.mean(np.ptp(longest, axis=0)) < 25


@given(lengths=LENGTHS, size=st.integers(1, 9), seed=st.integers(0, 99))
def test_random_batches_are_slices_of_a_permutation(lengths: list[int], size: int, seed: int) -> None:
    every = np.random.default_rng(seed).permutation(len(lengths)).tolist()
    found = question_batches(np.random.default_rng(seed), np.array(lengths), batch_size=size, order="random")
    assert [batch.qa for batch in found] == [tuple(every[i : i + size]) for i in range(0, len(every), size)]


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    def order(seed: int, epoch: int) -> list[BatchIndex]:
        found = sampler(classes=[0, 1] * 20, lengths=list(range(1, 60)), seed=seed)
        found.set_epoch(epoch)
        return list(found)

    assert order(0, 0) == order(0, 0)
    assert len({str(order(seed, epoch)) for seed in (0, 1) for epoch in (0, 1, 2)}) == 6


@given(lengths=LENGTHS, groups=st.integers(1, 60), every=st.integers(1, 4))
def test_questions_beside_groups_take_part_every_so_often(
    lengths: list[int], groups: int, every: int
) -> None:
    batches = list(sampler(classes=[0] * groups, lengths=lengths, qa_every=every))
    for i, batch in enumerate(batches):
        assert bool(batch.qa) == (i % every == 0)
    seen = Counter(i for batch in batches for i in batch.qa)
    assert max(seen.values()) - min(seen[i] for i in range(len(lengths))) <= 1


@given(
    windows=st.lists(st.lists(st.integers(1, 400), min_size=1, max_size=5), min_size=1, max_size=25),
    size=st.integers(1, 12),
    world_size=st.integers(1, 6),
)
def test_evaluation_counts_each_window_once_and_splits_no_question(
    windows: list[list[int]], size: int, world_size: int
) -> None:
    data = QASet.__new__(QASet)
    data.lengths = np.array([length for question in windows for length in question])
    examples = [i for i, question in enumerate(windows) for _ in question]
    data.question_N = data.row_N = np.array(examples)
    batches = data.batches(size)
    parts = [batches[rank::world_size] for rank in range(world_size)]
    seen = [i for part in parts for batch in part for i in batch]
    assert sorted(seen) == list(range(len(examples)))
    home: dict[int, tuple[int, int]] = {}
    for r, part in enumerate(parts):
        for b, batch in enumerate(part):
            assert batch
            for i in batch:
                assert home.setdefault(examples[i], (r, b)) == (r, b)
    longest = max(len(question) for question in windows)
    assert max(len(batch) for batch in batches) < size + longest


@pytest.mark.parametrize(("n", "size", "processes", "most"), [(13, 64, 2, 8), (13, 8, 2, 8), (3, 64, 8, 1)])
def test_every_process_gets_a_batch_where_there_are_enough(
    n: int, size: int, processes: int, most: int
) -> None:
    batches = enough_batches(lambda size: sorted_batches([5] * n, size), size, processes)
    assert sorted(i for batch in batches for i in batch) == list(range(n))
    assert len(batches) >= min(n, processes)
    assert max(map(len, batches)) <= most
