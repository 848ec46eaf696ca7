"""Samples of groups: evenly over the classes, nested, and repeatable."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from data_modules.groups_data import balanced_sample
from data_modules.schema import Group
from data_modules.stories import groups as story_groups

GROUPS = list(story_groups.groups("heldout"))


def uneven(ethical: int, adversarial: int, irrelevant: int) -> list[Group]:
    left = {"ethical": ethical, "adversarial": adversarial, "irrelevant": irrelevant}
    kept = []
    for group in GROUPS:
        if left[group.advice_class] > 0:
            left[group.advice_class] -= 1
            kept.append(group)
    return kept


@given(
    sizes=st.tuples(*[st.integers(1, 40)] * 3),
    total=st.integers(3, 130),
    more=st.integers(0, 50),
    seed=st.integers(0, 3),
)
def test_no_class_has_more_than_its_share_unless_another_has_too_few(
    sizes: tuple[int, int, int], total: int, more: int, seed: int
) -> None:
    groups = uneven(*sizes)
    sample = balanced_sample(groups, total, seed)
    taken = Counter(group.advice_class for group in sample)
    there = Counter(group.advice_class for group in groups)
    assert len(sample) == min(total, len(groups))
    for name, count in taken.items():
        assert count == there[name] or count >= max(taken.values()) - 1
    keys = [(group.key, group.advice_class) for group in sample]
    assert keys == [(g.key, g.advice_class) for g in groups if (g.key, g.advice_class) in set(keys)]
    assert set(keys) <= {(g.key, g.advice_class) for g in balanced_sample(groups, total + more, seed)}
