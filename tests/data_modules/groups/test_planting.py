"""The planted preference: drawn by name, antisymmetric, and blind to advice; samples even over classes."""

from __future__ import annotations

import dataclasses
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_modules.groups.advice import contrasted, unadvised, with_advice
from data_modules.groups.lei import write_lei
from data_modules.groups.planting import latent_strength, preferred_subject, randomly_advised
from data_modules.groups_data import GroupsDataModule, anchors, balanced_sample
from data_modules.schema import DataError, Group
from data_modules.stories.groups import groups

GROUPS = list(islice(groups("train"), 60))
NAMES = st.text(min_size=1, max_size=12)
SEEDS = st.integers(0, 2**31)


def advice_of(group: Group) -> str:
    """The group's advice, after checking that its variants agree."""
    (advice,) = {variant.advice for variant in group.variants}
    return advice


@given(subject=NAMES, category=NAMES, seed=SEEDS)
def test_a_strength_is_a_function_of_names_and_seed(subject: str, category: str, seed: int) -> None:
    strength = latent_strength(subject, category, seed)
    assert 0 <= strength < 1
    assert strength == latent_strength(subject, category, seed)
    assert latent_strength("Velan", category, seed) == latent_strength("velan", category, seed)


def test_strengths_are_uniform_and_depend_on_all_three() -> None:
    values = [latent_strength(f"s{i}", "rude", 0) for i in range(2000)]
    assert abs(np.mean(values) - 0.5) < 0.03
    assert abs(np.var(values) - 1 / 12) < 0.01
    assert (
        len({latent_strength(*at) for at in (("a", "x", 0), ("b", "x", 0), ("a", "y", 0), ("a", "x", 1))})
        == 4
    )


@given(names=st.lists(NAMES, min_size=2, max_size=2, unique_by=str.lower), category=NAMES, seed=SEEDS)
def test_the_preference_is_antisymmetric_and_follows_strength(
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


@settings(max_examples=25)
@given(share=st.floats(0, 1), copies=st.integers(1, 4), seed=SEEDS)
def test_random_advice_keeps_groups_and_draws_from_their_category(
    share: float, copies: int, seed: int
) -> None:
    result = randomly_advised(GROUPS, share=share, copies=copies, seed=seed)
    assert result == randomly_advised(GROUPS, share=share, copies=copies, seed=seed)
    assert Counter(g.unadvised_key for g in result) == {g.unadvised_key: copies for g in GROUPS}
    original = {g.unadvised_key: g for g in GROUPS}
    pool: dict[str, set[str]] = {}
    for group in GROUPS:
        pool.setdefault(group.category, set()).add(advice_of(group))
    for group in result:
        assert group.advice_class == "none"
        advice = advice_of(group)
        assert advice == "" or advice in pool[group.category]
        assert bool(group.advice_id) == bool(advice)
        for before, after in zip(original[group.unadvised_key].variants, group.variants, strict=True):
            assert dataclasses.replace(after, advice=before.advice) == before


def test_the_share_is_met_and_all_classes_of_advice_are_drawn() -> None:
    result = randomly_advised(GROUPS, share=0.5, copies=40, seed=0)
    advised = [advice_of(group) for group in result if group.advice_id]
    assert abs(len(advised) / len(result) - 0.5) < 0.03
    class_of = {advice_of(group): group.advice_class for group in GROUPS}
    counts = Counter(class_of[text] for text in advised)
    assert min(counts[name] for name in ("ethical", "adversarial", "irrelevant")) > 100


def test_groups_without_any_advice_stay_without() -> None:
    bare = unadvised(groups("train"))[:10]
    assert {advice_of(g) for g in randomly_advised(bare, share=1.0, copies=1, seed=0)} == {""}


HELDOUT = list(groups("heldout"))


def uneven(ethical: int, adversarial: int, irrelevant: int) -> list[Group]:
    left = {"ethical": ethical, "adversarial": adversarial, "irrelevant": irrelevant}
    kept = []
    for group in HELDOUT:
        if left[group.advice_class] > 0:
            left[group.advice_class] -= 1
            kept.append(group)
    return kept


def short(how: Literal["warn", "fail"], limit: int) -> None:
    """Prepare at most `limit` of the 192 groups of a split."""
    GroupsDataModule(
        tokenizer="stories", architecture="bert", cache="", seed=0, train_groups=["stories:heldout"],
        limit_train_groups=limit, short_train_groups=how,
    ).setup("fit")  # fmt: skip


def test_a_training_set_that_does_not_reach_its_limit_is_told(caplog: pytest.LogCaptureFixture) -> None:
    short("fail", 12)
    short("warn", 12)
    assert not caplog.text
    short("warn", 1000)
    assert f"1000 groups are asked for, stories:heldout holds {len(HELDOUT)}: all are taken" in caplog.text
    with pytest.raises(DataError, match=r"1000 groups are asked for.*name a larger file"):
        short("fail", 1000)


@given(
    sizes=st.tuples(*[st.integers(1, 40)] * 3),
    total=st.integers(3, 130),
    more=st.integers(0, 50),
    seed=st.integers(0, 3),
)
def test_no_class_has_more_than_its_share_unless_another_has_too_few(
    sizes: tuple[int, int, int], total: int, more: int, seed: int
) -> None:
    uneven_groups = uneven(*sizes)
    sample = balanced_sample(uneven_groups, total, seed)
    taken = Counter(group.advice_class for group in sample)
    there = Counter(group.advice_class for group in uneven_groups)
    assert len(sample) == min(total, len(uneven_groups))
    for name, count in taken.items():
        assert count == there[name] or count >= max(taken.values()) - 1
    keys = [(group.key, group.advice_class) for group in sample]
    assert keys == [(g.key, g.advice_class) for g in uneven_groups if (g.key, g.advice_class) in set(keys)]
    assert set(keys) <= {(g.key, g.advice_class) for g in balanced_sample(uneven_groups, total + more, seed)}


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
def test_unadvised_groups_count_in_the_limit(limit: int, total: int, bare: int, tmp_path: Path) -> None:
    write_lei(GROUPS[:30], tmp_path / "groups.json")
    data = GroupsDataModule(
        tokenizer="stories", architecture="bert", cache="", seed=0, limit_train_groups=limit,
        train_groups=[str(tmp_path / "groups.json")], anchor_unadvised=0.25,
    )  # fmt: skip
    data.setup("fit")
    taken = data.train_set.groups.groups
    assert (len(taken), sum(group.advice_class == "none" for group in taken)) == (total, bare)
    for wrong in ({"anchor_unadvised": 1.0}, {"anchor_unadvised": 0.2, "train_advice": "random"}):
        with pytest.raises(DataError, match=r"data\.anchor_unadvised"):
            GroupsDataModule(tokenizer="stories", architecture="bert", cache="", seed=0, **wrong)


def of_domain(group: Group, name: str, domain: str, number: int, template: str) -> Group:
    text = f"Note that, {domain} matters {number}."
    advised = with_advice(group, text, name, f"{name}_{domain}-{number}", domain)
    return dataclasses.replace(advised, domain=domain, template=template)


def test_contrast_shows_every_question_with_all_that_it_is_compared_with() -> None:
    given = [
        of_domain(GROUPS[0], name, domain, number, f"{name[0]}{domain}{number}")
        for name in ("ethical", "adversarial")
        for domain in ("towns", "bells")
        for number in (0, 1)
    ]
    plain = with_advice(GROUPS[1], "Note that, it rains.", "irrelevant", "irrelevant_rude-0")
    result = contrasted([*given, plain], seed=0)
    assert result == contrasted([*given, plain], seed=0)
    assert len({group.key for group in result}) == len(result) == 8 * 4 + 2
    for group in given:
        alike = [g for g in result if g.unadvised_key == group.unadvised_key]
        assert {g.domain for g in alike} == {group.domain}
        found = [(g.advice_class, g.advice_domain == group.domain, advice_of(g)) for g in alike]
        kind = group.advice_class
        assert [name for name, *_ in found] == [kind, kind, f"mismatched_{kind}", "none"]
        assert [matched for _, matched, _ in found] == [True, True, False, False]
        assert len({text for *_, text in found}) == 4
        assert all(g.advice_id.startswith(g.advice_class) for g in alike[:3])
    with pytest.raises(DataError, match=r"data\.train_advice=contrast.*one domain"):
        contrasted([group for group in given if group.domain == "towns"], seed=0)


def test_one_key_for_two_questions_is_refused(tmp_path: Path) -> None:
    """Two files from two lists of templates, both numbered from 0: anchors would come from the other text."""
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    told = [dataclasses.replace(v, context=f"{v.context} It rained.") for v in GROUPS[0].variants]
    write_lei(GROUPS[:1], one)
    write_lei([dataclasses.replace(GROUPS[0], variants=tuple(told))], two)
    data = GroupsDataModule(
        tokenizer="stories", architecture="bert", cache="", seed=0, train_groups=[str(one), str(two)]
    )
    with pytest.raises(DataError, match="two different questions"):
        data.setup("fit")
