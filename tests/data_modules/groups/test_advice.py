"""Advice on groups, samples even over its classes, and the planted preference, which is blind to it."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.groups.advice import (
    latent_strength,
    read_advice,
    spread,
    unadvised,
    with_unadvised,
)
from data_modules.groups_data import GroupsDataModule, anchors, balanced_sample, check_keys, randomly_advised
from data_modules.schema.spans import write_records
from data_modules.stories.groups import groups
from storage.errors import DataError
from tests.data_modules.fixtures.tiny_lists import advice_of
from training.modules.planted import preferred_subject


def test_read_advice_numbers_sentences_as_the_file_does(tmp_path: Path) -> None:
    path = tmp_path / "advice.json"
    classes = ("ethical", "adversarial", "irrelevant")
    content = {name: {"Rude ": ["One.", float("nan"), "", None, " Two. "]} for name in classes}
    path.write_text(json.dumps(content))
    advice = read_advice(path)
    assert [item.id for item in advice] == [f"{name}_rude-{i}" for name in classes for i in (0, 4)]
    assert {item.sentence for item in advice} == {"One.", "Two."}
    path.write_text(json.dumps({"wise": {"rude": ["One."]}}))
    with pytest.raises(DataError, match=r"advice\.json.*wise"):
        read_advice(path)


@pytest.mark.parametrize("with_none", [True, False])
def test_spread_takes_n_of_each_class_and_what_they_ask_without_advice(with_none: bool) -> None:
    every = list(islice(groups("train"), 600))
    taken = with_unadvised(spread(with_unadvised(every) if with_none else every, 5))
    counts = Counter(group.advice_class for group in taken)
    questions = {group.unadvised_key for group in taken if group.advice_class != "none"}
    assert counts == {"ethical": 5, "adversarial": 5, "irrelevant": 5, "none": len(questions)}
    assert questions == {group.unadvised_key for group in taken if group.advice_class == "none"}


GROUPS = list(islice(groups("train"), 60))
HELDOUT = list(groups("heldout"))
NAMES = st.text(min_size=1, max_size=12)
SEEDS = st.integers(0, 2**31)


@given(names=st.lists(NAMES, min_size=2, max_size=2, unique_by=str.lower), category=NAMES, seed=SEEDS)
def test_preferred_subject_is_antisymmetric_and_follows_strength(
    names: list[str], category: str, seed: int
) -> None:
    group = dataclasses.replace(GROUPS[0], subjects=(names[0], names[1]), category=category)
    turned = dataclasses.replace(group, subjects=(names[1], names[0]))
    chosen = preferred_subject(group, seed)
    assert chosen == 1 - preferred_subject(turned, seed)
    strengths = [latent_strength(name, category, seed) for name in names]
    assert strengths[chosen] == max(strengths)
    # With scope `subject` the category plays no part.
    one_for_all = [latent_strength(name, "", seed) for name in names]
    assert one_for_all[preferred_subject(group, seed, "subject")] == max(one_for_all)


@given(copies=st.integers(1, 40), seed=SEEDS)
def test_randomly_advised_keeps_groups_and_draws_from_their_category(copies: int, seed: int) -> None:
    result = randomly_advised(GROUPS, copies=copies, seed=seed)
    assert unadvised(result) == unadvised(GROUPS)
    assert {*Counter(group.unadvised_key for group in result).values()} == {copies}
    pool = {(group.category, advice_of(group)) for group in GROUPS}
    assert {(g.category, advice_of(g)) for g in result if g.advice_id} <= pool
    assert {advice_of(g) for g in result if not g.advice_id} <= {""}
    if copies > 30:
        share = sum(bool(group.advice_id) for group in result) / len(result)
        assert abs(share - 0.5) < 0.07


@given(
    sizes=st.tuples(*[st.integers(1, 40)] * 3),
    total=st.integers(3, 130),
    more=st.integers(0, 50),
    seed=st.integers(0, 3),
)
def test_balanced_sample_is_even_and_nested(
    sizes: tuple[int, int, int], total: int, more: int, seed: int
) -> None:
    of_class = zip(("ethical", "adversarial", "irrelevant"), sizes, strict=True)
    uneven = [g for name, size in of_class for g in [g for g in HELDOUT if g.advice_class == name][:size]]
    sample = balanced_sample(uneven, total, seed)
    taken, there = (Counter(group.advice_class for group in found) for found in (sample, uneven))
    assert len(sample) == min(total, len(uneven))
    for name, count in taken.items():
        assert count == there[name] or count >= max(taken.values()) - 1
    assert sample == [group for group in uneven if group in sample]
    larger = balanced_sample(uneven, total + more, seed)
    assert {group.key for group in sample} <= {group.key for group in larger}


@given(size=st.integers(1, 60), share=st.floats(0, 0.9), more=st.integers(0, 60), seed=st.integers(0, 3))
def test_anchors_make_up_their_share_and_are_nested(size: int, share: float, more: int, seed: int) -> None:
    found = anchors(GROUPS[:size], GROUPS, share, seed)
    assert abs(len(found) - share * (size + len(found))) <= 0.5
    assert {advice_of(group) for group in found} <= {""}
    counts = Counter(group.unadvised_key for group in found).values()
    assert max(counts, default=0) <= min(counts, default=0) + (
        len(counts) == len({g.unadvised_key for g in GROUPS})
    )
    assert anchors((GROUPS * 2)[: size + more], GROUPS, share, seed)[: len(found)] == found
    assert anchors([*GROUPS[:size], *found], GROUPS, share, seed) == []


@pytest.mark.parametrize(("limit", "total", "bare"), [(0, 40, 10), (10, 10, 2), (11, 11, 3)])
def test_anchor_unadvised_counts_in_the_limit(limit: int, total: int, bare: int, tmp_path: Path) -> None:
    write_records(GROUPS[:30], tmp_path / "groups.json")
    data = GroupsDataModule(
        tokenizer="stories", architecture="bert", cache="", seed=0, limit_train_groups=limit,
        train_groups=[str(tmp_path / "groups.json")], anchor_unadvised=0.25,
    )  # fmt: skip
    data.setup("fit")
    taken = data.train_set.groups.groups
    assert (len(taken), sum(group.advice_class == "none" for group in taken)) == (total, bare)
    for wrong in ({"anchor_unadvised": 1.0}, {"anchor_unadvised": 0.2, "random_advice_copies": 1}):
        with pytest.raises(DataError, match=r"data\.anchor_unadvised"):
            GroupsDataModule(tokenizer="stories", architecture="bert", cache="", seed=0, **wrong)


def test_one_key_for_two_questions_is_refused() -> None:
    """Two files from two lists of templates, both numbered from 0: anchors would come from the other text."""
    one, two, three, four = (dataclasses.replace(v, question="Who?") for v in GROUPS[0].variants)
    with pytest.raises(DataError, match="two questions"):
        check_keys([GROUPS[0], dataclasses.replace(GROUPS[0], variants=(one, two, three, four))], ["a.json"])
