"""Groups with advice: samples even over its classes, the planted preference, gold."""

import json
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interventune.data_modules import groups_data
from interventune.data_modules.groups.sets import advised_cells, gold_examples, restrict, sample
from interventune.data_modules.groups.unqover import read_expansion
from interventune.data_modules.interventions.variants import perturb
from interventune.data_modules.schema import groups as schema
from interventune.data_modules.schema.groups import (
    read_advice,
    unadvised,
    with_advice,
    with_unadvised,
)
from interventune.data_modules.schema.questions import QAExample, write_records
from interventune.data_modules.sources import read_groups
from interventune.data_modules.stories.groups import groups
from interventune.storage.documents import DataError
from interventune.training.modules.advice import preferred_subject
from tests.data_modules.fixtures import tiny_lists as tiny


def test_sentences_have_the_files_numbers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "advice.json"
    classes = ("ethical", "adversarial", "irrelevant")
    sentences: list[Any] = ["One.", float("nan"), "", None, " Two. "]
    content = {name: {"Rude ": sentences} for name in classes}
    path.write_text(json.dumps(content))
    advice = read_advice(path)
    assert [item.id for item in advice] == [f"{name}_rude-{i}" for name in classes for i in (0, 4)]
    assert {item.sentence for item in advice} == {"One.", "Two."}
    content["irrelevant"] = {"Rude ": sentences + ["Three."] * 2}
    path.write_text(json.dumps(content))
    assert read_advice(path) == advice
    assert "left out 2 irrelevant" in caplog.text
    path.write_text(json.dumps({"wise": {"rude": ["One."]}}))
    with pytest.raises(DataError, match=r"advice\.json.*wise"):
        read_advice(path)


@pytest.mark.parametrize("with_none", [True, False])
def test_spread_takes_n_of_each_class_and_what_they_ask_without_advice(with_none: bool) -> None:
    every = list(islice(groups("train"), 600))
    taken = with_unadvised(schema.spread(with_unadvised(every) if with_none else every, 5))
    counts = Counter(group.advice_class for group in taken)
    questions = {group.unadvised_key for group in taken if group.advice_class != "none"}
    assert counts == {"ethical": 5, "adversarial": 5, "irrelevant": 5, "none": len(questions)}
    assert questions == {group.unadvised_key for group in taken if group.advice_class == "none"}


GROUPS = list(islice(groups("train"), 60))
HELDOUT = list(groups("heldout"))
NAMES = st.text(min_size=1, max_size=12)
SEEDS = st.integers(0, 2**31)


@given(st.lists(NAMES, min_size=2, max_size=2, unique_by=str.lower), NAMES, SEEDS)
def test_the_preferred_subject_is_the_stronger(names: list[str], category: str, seed: int) -> None:
    group = replace(GROUPS[0], subjects=(names[0], names[1]), category=category)
    chosen = preferred_subject(group, seed)
    assert chosen == 1 - preferred_subject(replace(group, subjects=(names[1], names[0])), seed)
    strengths = [schema.latent_strength(name, category, seed) for name in names]
    assert strengths[chosen] == max(strengths)
    # With scope `subject` the category plays no part.
    one_for_all = [schema.latent_strength(name, "", seed) for name in names]
    assert one_for_all[preferred_subject(group, seed, "subject")] == max(one_for_all)


@given(copies=st.integers(1, 40), seed=SEEDS)
def test_randomly_advised_draws_from_the_category(copies: int, seed: int) -> None:
    result = groups_data.randomly_advised(GROUPS, copies=copies, seed=seed)
    assert unadvised(result) == unadvised(GROUPS)
    assert {*Counter(group.unadvised_key for group in result).values()} == {copies}
    pool = {(group.category, tiny.advice_of(group)) for group in GROUPS}
    assert {(g.category, tiny.advice_of(g)) for g in result if g.advice_id} <= pool
    assert {tiny.advice_of(g) for g in result if not g.advice_id} <= {""}
    if copies > 30:
        share = sum(bool(group.advice_id) for group in result) / len(result)
        assert abs(share - 0.5) < 0.07


SIZES = st.tuples(*[st.integers(1, 40)] * 3)


@given(SIZES, st.integers(3, 130), st.integers(0, 50), st.integers(0, 3))
def test_even_nested_samples(sizes: tuple[int, int, int], total: int, more: int, seed: int) -> None:
    uneven = []
    for name, size in zip(("ethical", "adversarial", "irrelevant"), sizes, strict=True):
        uneven += [group for group in HELDOUT if group.advice_class == name][:size]
    drawn = groups_data.balanced_sample(uneven, total, seed)
    counts, available = (Counter(g.advice_class for g in part) for part in (drawn, uneven))
    assert len(drawn) == min(total, len(uneven))
    for name, count in counts.items():
        assert count == available[name] or count >= max(counts.values()) - 1
    assert drawn == [group for group in uneven if group in drawn]
    larger = groups_data.balanced_sample(uneven, total + more, seed)
    assert {group.key for group in drawn} <= {group.key for group in larger}


@pytest.mark.parametrize(("limit", "total", "bare"), [(0, 40, 10), (10, 10, 2), (11, 11, 3)])
def test_unadvised_count_in_the_limit(limit: int, total: int, bare: int, tmp_path: Path) -> None:
    write_records(GROUPS[:30], tmp_path / "groups.json")
    options: Any = {"tokenizer": "stories", "architecture": "bert", "cache": "", "seed": 0}
    options |= {"train_groups": [str(tmp_path / "groups.json")], "limit_train_groups": limit}
    data = groups_data.GroupsDataModule(**options, anchor_unadvised=0.25)
    data.setup("fit")
    taken = data.train_set.groups.groups
    assert (len(taken), sum(group.advice_class == "none" for group in taken)) == (total, bare)
    for wrong in ({"anchor_unadvised": 1.0}, {"anchor_unadvised": 0.2, "random_advice_copies": 1}):
        with pytest.raises(DataError, match=r"data\.anchor_unadvised"):
            groups_data.GroupsDataModule(**options, **wrong)


def test_one_key_for_two_questions_is_refused() -> None:
    """Of two lists of templates, both numbered from 0: anchors would come from the other text."""
    one, two, three, four = (replace(v, question="Who?") for v in GROUPS[0].variants)
    other = replace(GROUPS[0], variants=(one, two, three, four))
    with pytest.raises(DataError, match="two questions"):
        groups_data.check_keys([GROUPS[0], other], ["a.json"])


ADVICE = read_advice(tiny.LISTS / "interventions.json")
LISTS = [tiny.LISTS / name for name in ("subjects", "templates", "attributes")]
EXPANSION = read_expansion(LISTS[:1], *LISTS[1:])


@given(per_class=st.integers(1, 60), seed=st.integers())
def test_samples_are_balanced_distinct_and_depend_on_their_class(per_class: int, seed: int) -> None:
    pairs, cells, _ = EXPANSION
    pools = advised_cells(cells, ADVICE)
    drawn = list(sample(pairs, pools, per_class, seed=seed))
    assert Counter(group.advice_class for group in drawn) == dict.fromkeys(pools, per_class)
    assert len({group.key for group in drawn}) == len(drawn)
    first = sample(pairs, {"ethical": pools["ethical"]}, per_class, seed=seed)
    assert list(first) == drawn[:per_class]
    with pytest.raises(DataError, match="241 groups are asked for, class ethical has 240"):
        list(sample(pairs, pools, 241, seed=0))


def test_restrict_bars_the_same_words_under_another_id() -> None:
    weather = [item for item in ADVICE if item.sentence == "The weather was fine."]
    assert [item.category for item in weather] == ["rude", "wealth"]
    group = with_advice(tiny.make_group(), weather[0].text, "irrelevant", weather[0].id)
    left = restrict(EXPANSION._replace(advice=ADVICE), [group], without=True)
    assert set(ADVICE) - set(left.advice) == set(weather)


@pytest.mark.parametrize(
    ("name", "keys"), [("addedbias_train_4096", 9492), ("addedbias_noniid_dev", 4620)]
)
def test_cross_products_contain_the_released_files(shared: Path, name: str, keys: int) -> None:
    lei = shared / "data/lei"
    shipped = list(read_groups(lei / f"underspecified/religion/{name}_squad.json"))
    paths = "nouns/subjects/religion", "slots/religion_noact", "activities/biased_religion"
    subjects, *rest = (lei / "word_lists" / path for path in paths)
    sentences = read_advice(lei / "interventions/religion_interventions.json")
    irrelevant = (item for item in sentences if item.advice_class == "irrelevant")
    # Those of the category `general` apply to no group.
    assert {item.number for item in irrelevant if item.category != "general"} == {*range(8)}
    expansion = read_expansion([subjects], *rest)._replace(advice=sentences)
    pairs, cells, advice = restrict(expansion, shipped)
    pools = advised_cells(cells, advice)
    built = {group.key: group for group in sample(pairs, pools, None, seed=0)}
    assert len(built) == keys
    assert all(built[group.key] == group for group in shipped)


ALIKE = "Oro|Ulban", "Al|Alan", "African|African-American", "American|Native American"


@pytest.mark.parametrize("subjects", ALIKE)
def test_gold_is_the_subject_that_both_orders_name(subjects: str) -> None:
    plain = tiny.make_group(*subjects.split("|"))
    assert plain.gold is None
    for gold in (0, 1):
        assert tiny.decided(plain, gold).gold == gold
    assert tiny.decided(tiny.decided(plain, 0), 1).gold is None
    of_each_order_another = [
        replace(v, context=f"{v.context} {v.context.split()[0]} ran.") for v in plain.variants
    ]
    assert replace(plain, variants=tuple(of_each_order_another)).gold is None


def test_gold_examples_are_the_questions_of_both_orders_with_one_answer(tmp_path: Path) -> None:
    advised = with_advice(tiny.make_group(), "Note that, be fair.", "ethical", "ethical_rude-2")
    found = list(gold_examples([advised, tiny.decided(advised, 0)]))
    assert [example.id for example in found] == [f"{advised.key}|0", f"{advised.key}|1"]
    assert [example.context[:-12] for example in found] == ["Oro met Ulban.", "Ulban met Oro."]
    asked = {(example.question, example.advice, example.answers[0].text) for example in found}
    assert asked == {("Who was loud?", "Note that, be fair.", "Oro")}
    # The answer is where the context decides, and goes with it.
    places = [*tiny.groups_of(tiny.expansion(tmp_path, *tiny.DEMONYMS))]
    assert {group.gold for group in places} == {None}
    for end in ("It was [subj].", "[subj] baked. The bread was good.", "[subj] ran. [subj] fell."):
        for example in gold_examples(tiny.decided(group, 1, end) for group in places):
            assert example.answers[0].start > example.context.index(".")
            deleted = perturb(example, "os_r")
            assert isinstance(deleted, QAExample)
            assert deleted.context == example.context[: example.context.index(".") + 1]
