from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.groups.advice import read_advice
from data_modules.groups.sets import SPLITS, HeldOut, Parts, advised_pools, restrict, sample, split_parts
from data_modules.groups.unqover import read_expansion
from storage.errors import DataError
from tests.data_modules.fixtures.tiny_lists import (
    INTERVENTIONS,
    Tiny,
    name_expansion,
    put,
    religion,
    shared_parts,
)


def long_lists(folder: Path) -> Tiny:
    """11 subjects, 2 categories of 7 attributes, 8 sentences a class and category, some repeated."""
    subjects = put(folder / "s", "".join(f"[subj] S{i}\n" for i in range(11)))
    slots = put(folder / "t", "[subj1] met [subj2].\tWho [p]?\tWho [p:neg]?\n")
    rows = [f"[p{neg}] {c} | did{neg} {c}{i}\n" for neg in ("", ":neg") for c in "uv" for i in range(7)]
    attributes = put(folder / "a", "".join(rows).replace("did:neg", "skipped"))
    sentences = {
        name: {c: [f"{name} {i if i % 2 else c} {i}." for i in range(8)] for c in "uv"}
        for name in INTERVENTIONS
    }
    advice = put(folder / "i.json", json.dumps(sentences))
    return read_expansion([subjects], slots, attributes), read_advice(advice)


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return long_lists(tmp_path_factory.mktemp("long"))


@given(seed=st.integers(0, 10_000))
def test_splits_never_leak_and_cover_everything(long: Tiny, seed: int) -> None:
    expansion, advice = long
    parts = split_parts(expansion, advice, seed=seed)
    assert parts == split_parts(expansion, advice, seed=seed)
    for kind, total in (("subjects", 11), ("attributes", 14), ("advice_ids", 48)):
        names = [getattr(parts[split], kind) for split in SPLITS]
        assert sum(len(n) for n in names) == len(frozenset().union(*names)) == total
    assert [len(parts[split].subjects or ()) for split in SPLITS] == [4, 3, 4]
    for category in "uv":  # 7 x (4, 3, 4) / 11 = 2.5, 1.9, 2.5
        counts = [
            sum(
                name.endswith(tuple(f"{category}{i}" for i in range(7))) for name in parts[s].attributes or ()
            )
            for s in SPLITS
        ]
        assert sorted(counts) in ([2, 2, 3],)
    texts = {item.id: item.sentence for item in advice}
    for one, two in combinations(SPLITS, 2):
        assert not {texts[i] for i in parts[one].advice_ids or ()} & {
            texts[i] for i in parts[two].advice_ids or ()
        }


def test_two_subject_lists_are_divided_each(tmp_path: Path) -> None:
    put(tmp_path / "jobs.json", json.dumps({name: {"none": ["A.", "B.", "C."]} for name in INTERVENTIONS}))
    advice = read_advice(tmp_path / "jobs.json")
    expansion = name_expansion(tmp_path)
    parts = split_parts(expansion, advice, weights=(1, 0, 1))
    for split in ("train", "test"):
        smaller, _ = restrict(expansion, advice, to=parts[split])
        assert len(smaller) > 0
    assert parts["dev"] == Parts(frozenset(), frozenset(), frozenset())
    with pytest.raises(DataError, match=r"split '\w+': .* make no group; give longer lists"):
        split_parts(expansion, advice)
    with pytest.raises(DataError, match="expected three numbers"):
        split_parts(expansion, advice, weights=(0, 0, 0))


def test_splits_of_the_real_lists_do_not_leak(shared: Path) -> None:
    parts = split_parts(*religion(shared), seed=0)
    sets = []
    for split in SPLITS:
        pools = advised_pools(*restrict(*religion(shared), to=parts[split]))
        sets.append(list(sample(pools, 400, seed=0, exclude=HeldOut())))
    for one, two in combinations(sets, 2):
        assert not shared_parts(one, two)
