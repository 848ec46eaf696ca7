from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.groups.advice import Advice, read_advice, with_advice
from data_modules.groups.sets import SPLITS, advised_pools, parts_of, restrict, sample, split_parts
from data_modules.groups.unqover import Expansion, read_expansion
from data_modules.sources import read_groups
from storage.errors import DataError
from tests.data_modules.fixtures.tiny_lists import (
    COUNTS,
    INTERVENTIONS,
    Tiny,
    make_group,
    put,
    religion,
    tiny_expansion,
    write_lists,
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Expansion, tuple[Advice, ...]]:
    folder = tmp_path_factory.mktemp("tiny")
    return tiny_expansion(folder), read_advice(write_lists(folder)["interventions"])


def test_a_pool_is_the_product_of_groups_and_the_advice_of_their_category(tiny: Tiny) -> None:
    expansion, advice = tiny
    pools = advised_pools(expansion, advice)
    assert list(pools) == ["ethical", "adversarial", "irrelevant"]
    for name, pool in pools.items():
        items = [item for item in advice if item.advice_class == name]
        pairs = [(group, item) for group in expansion for item in items if item.category == group.category]
        assert list(pool) == [with_advice(group, item.text, name, item.id) for group, item in pairs]
        assert len(pool) == COUNTS["advised"]
    assert advised_pools(expansion, ()) == {"none": expansion}


@given(per_class=st.integers(1, 60), seed=st.integers())
def test_samples_are_balanced_distinct_and_depend_on_their_class_alone(
    tiny: Tiny, per_class: int, seed: int
) -> None:
    pools = advised_pools(*tiny)
    drawn = list(sample(pools, per_class, seed=seed))
    assert Counter(group.advice_class for group in drawn) == dict.fromkeys(pools, per_class)
    assert len({group.key for group in drawn}) == len(drawn)
    assert list(sample({"ethical": pools["ethical"]}, per_class, seed=seed)) == drawn[:per_class]
    with pytest.raises(DataError, match="241 groups are asked for, class ethical has 240"):
        list(sample(pools, 241, seed=0))


def test_restrict_bars_the_same_words_under_another_id(tiny: Tiny) -> None:
    expansion, advice = tiny
    weather = [item for item in advice if item.sentence == "The weather was fine."]
    assert [item.category for item in weather] == ["rude", "wealth"]
    train = [with_advice(make_group("Ann", "Bo"), weather[0].text, "irrelevant", weather[0].id)]
    _, left = restrict(expansion, advice, parts_of(train), without=True)
    assert set(advice) - set(left) == set(weather)


@pytest.mark.parametrize(("name", "keys"), [("addedbias_train_4096", 9492), ("addedbias_noniid_dev", 4620)])
def test_cross_products_of_the_spec_contain_the_released_files(shared: Path, name: str, keys: int) -> None:
    shipped = list(read_groups(shared / f"data/lei/underspecified/religion/{name}_squad.json"))
    expansion, advice = restrict(*religion(shared), parts_of(shipped))
    built = {group.key: group for pool in advised_pools(expansion, advice).values() for group in pool}
    assert len(built) == keys
    assert all(built[group.key] == group for group in shipped)


def test_the_gender_pool_of_672000_groups_is_sampled_without_building_it(shared: Path) -> None:
    lists = shared / "data/lei/word_lists"
    subjects = [lists / "nouns/subjects" / name for name in ("female", "male")]
    expansion = read_expansion(subjects, lists / "slots/gender_noact", lists / "activities/occupation_rev1")
    pools = advised_pools(expansion, read_advice(shared / "data/lei/interventions/gender_interventions.json"))
    assert sum(len(pool) for pool in pools.values()) == 672_000
    assert len(list(sample(pools, 400, seed=0))) == 1200


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """11 subjects, 2 categories of 7 attributes, 8 sentences a class and category, some repeated."""
    folder = tmp_path_factory.mktemp("long")
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


@given(seed=st.integers(0, 10_000))
def test_splits_never_leak_and_cover_everything(long: Tiny, seed: int) -> None:
    parts = split_parts(*long, seed=seed)
    text = {item.id: item.text for item in long[1]}
    for kind, total in (("subjects", 11), ("attributes", 14), ("advice", 48)):
        names = [getattr(parts[split], kind) for split in SPLITS]
        assert sum(map(len, names)) == len(frozenset().union(*names)) == total
    words = [{text[name] for name in parts[split].advice or ()} for split in SPLITS]
    assert not words[0] & words[1] | words[0] & words[2] | words[1] & words[2]
    assert [len(parts[split].subjects or ()) for split in SPLITS] == [4, 3, 4]
    for category in "uv":  # 7 x (4, 3, 4) / 11 = 2.5, 1.9, 2.5
        counts = [sum(category in name.split()[1] for name in parts[s].attributes or ()) for s in SPLITS]
        assert sorted(counts) == [2, 2, 3]
