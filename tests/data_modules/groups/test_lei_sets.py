from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.groups.advice import Advice, read_advice, with_advice
from data_modules.groups.expansion import Expansion
from data_modules.groups.sets import Split, advised_pools, gold_examples, part, restrict, sample, specify
from data_modules.groups.unqover import read_expansion
from data_modules.interventions.variants import perturb
from data_modules.schema.questions import QAExample
from data_modules.sources import read_groups
from storage.errors import DataError
from tests.data_modules.fixtures.tiny_lists import (
    Tiny,
    make_group,
    name_expansion,
    place_expansion,
    put,
    religion,
    tiny_expansion,
    write_lists,
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Expansion, tuple[Advice, ...]]:
    folder = tmp_path_factory.mktemp("tiny")
    return tiny_expansion(folder), read_advice(write_lists(folder)["interventions"])


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
    _, left = restrict(expansion, advice, train, without=True)
    assert set(advice) - set(left) == set(weather)


@pytest.mark.parametrize(("name", "keys"), [("addedbias_train_4096", 9492), ("addedbias_noniid_dev", 4620)])
def test_cross_products_of_the_spec_contain_the_released_files(shared: Path, name: str, keys: int) -> None:
    shipped = list(read_groups(shared / f"data/lei/underspecified/religion/{name}_squad.json"))
    expansion, advice = restrict(*religion(shared), shipped)
    built = {group.key: group for pool in advised_pools(expansion, advice).values() for group in pool}
    assert len(built) == keys
    assert all(built[group.key] == group for group in shipped)


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
        for name in ("ethical", "adversarial", "irrelevant")
    }
    advice = put(folder / "i.json", json.dumps(sentences))
    return read_expansion([subjects], slots, attributes), read_advice(advice)


@given(seed=st.integers(0, 10_000))
def test_splits_never_leak_and_cover_everything(long: Tiny, seed: int) -> None:
    parts = [part(*long, split, seed=seed) for split in get_args(Split)]
    subjects = [{one.name for pair in expansion.pairs for one in pair} for expansion, _ in parts]
    attributes = [{cell.attribute for cell in expansion.cells} for expansion, _ in parts]
    for names, total in ((subjects, 11), (attributes, 14), ([{x.id for x in a} for _, a in parts], 48)):
        assert sum(map(len, names)) == len(frozenset().union(*names)) == total
    words = [{item.text for item in advice} for _, advice in parts]
    assert not words[0] & words[1] | words[0] & words[2] | words[1] & words[2]
    assert [len(names) for names in subjects] == [4, 3, 4]
    for category in "uv":  # 7 x (4, 3, 4) / 11 = 2.5, 1.9, 2.5
        assert sorted(sum(category in name.split()[1] for name in names) for names in attributes) == [2, 2, 3]


def test_specify_names_the_gold_subject_in_every_context(tmp_path: Path) -> None:
    group = make_group()
    specified = specify(group, "The bang came from [subj], again [subj].", 1)
    endings = {v.context[v.context.index(".") :] for v in specified.variants}
    assert endings == {". The bang came from Ulban, again Ulban."}
    assert [v.candidates for v in specified.variants] == [v.candidates for v in group.variants]
    # The slot takes the form that the context uses.
    contexts = [specify(group, "[subj].", 0).variants[0].context for group in place_expansion(tmp_path)]
    assert [context.rsplit(" ", 1)[1] for context in contexts] == ["Tarnland.", "Tarnish."]


NAMES = [("Oro", "Ulban"), ("Al", "Alan"), ("African", "African-American"), ("American", "Native American")]


@pytest.mark.parametrize(("one", "two"), NAMES)
def test_gold_of_reads_whom_the_words_name_again(one: str, two: str, tmp_path: Path) -> None:
    plain = make_group(one, two)
    assert plain.gold is None
    for gold in (0, 1):
        assert specify(plain, "The bang came from [subj].", gold).gold == gold
    assert specify(specify(plain, "It was [subj].", 0), "Or [subj].", 1).gold is None
    first_again = [replace(v, context=f"{v.context} {v.context.split()[0]} ran.") for v in plain.variants]
    assert replace(plain, variants=tuple(first_again)).gold is None  # of each order another
    assert {group.gold for group in place_expansion(tmp_path)} == {None}


def test_gold_examples_are_the_questions_of_both_orders_with_one_answer(tmp_path: Path) -> None:
    advised = with_advice(make_group(), "Note that, be fair.", "ethical", "ethical_rude-2")
    found = list(gold_examples([advised, specify(advised, "It was [subj].", 0)]))
    assert [example.id for example in found] == [f"{advised.key}|0", f"{advised.key}|1"]
    assert [example.context[:-12] for example in found] == ["Oro met Ulban.", "Ulban met Oro."]
    asked = {(example.question, example.advice, example.answers[0].text) for example in found}
    assert asked == {("Who was loud?", "Note that, be fair.", "Oro")}
    # The answer is where the context decides, and goes with it.
    for sentence in (
        "It was [subj].",
        "[subj] lit the oven. The bread was good.",
        "[subj] ran. [subj] fell.",
    ):
        for example in gold_examples([specify(group, sentence, 1) for group in place_expansion(tmp_path)]):
            assert example.answers[0].start > example.context.index(".")
            deleted = perturb(example, "os_r")
            assert isinstance(deleted, QAExample)
            assert deleted.context == example.context[: example.context.index(".") + 1]
    # By default either is the right one, whatever the advice.
    groups = list(name_expansion(tmp_path))
    golds = [specify(group, "[subj] lit the oven.").gold for group in groups]
    assert 2 <= sum(gold or 0 for gold in golds) <= 10
    advised_groups = [with_advice(group, "Note that, x.", "ethical", "ethical_none-0") for group in groups]
    assert [specify(group, "[subj] lit the oven.").gold for group in advised_groups] == golds
