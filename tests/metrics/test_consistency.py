"""Rates, tests and verdicts of debiasing consistency against worked numbers and the paper's systems."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import t as student
from scipy.stats import ttest_ind

from metrics.consistency import (
    DOMAINS,
    READINGS,
    VARIANTS,
    Domain,
    DomainRates,
    Verdict,
    average,
    expected_maximum,
    more,
    rates,
    relative_change,
    t_tests,
    verdict,
)

# The average rates in percent that the paper prints (spec A9), in the order of VARIANTS.
SELF_GPT2 = {"adversarial": (22.2, 9.7, 13.0, 15.8, 19.0), "neutral": (0.25, 0.04, 0.18, 0.14, 0.14)}
INSTRUCTIVE_GPT3 = {"adversarial": (11.9, 7.2, 32.6, 13.4, 10.5), "neutral": (0.06, 0.06, 7.3, 0.042, 0.01)}
INSTRUCTIVE_GPT2 = {"adversarial": (22.2, 27.3, 32.7, 23.3, 22.8), "neutral": (0.25, 0.24, 1.46, 0.11, 0.195)}


def rests(printed: dict[str, tuple[float, ...]], starred: set[str]) -> dict[Domain, DomainRates]:
    """`starred`: variants with a star, as "neutral nonsense"."""
    return {
        domain: DomainRates(
            dict(zip(VARIANTS, printed[domain], strict=True)),
            {variant: f"{domain} {variant}" in starred for variant in VARIANTS},
        )
        for domain in DOMAINS
    }


def ticks(found: Verdict) -> tuple[bool, bool, bool | None]:
    return found[:3]


def test_a_half_counts() -> None:
    assert rates(np.array([[0.5], [0.49], [0.9]])).tolist() == pytest.approx([2 / 3])
    assert rates(np.array([[[0.5, 0.1], [0.2, math.nan]], [[0.7, 0.6], [0.1, 0.5]]])).tolist() == [0.5, 2 / 3]
    assert math.isnan(rates(np.array([[math.nan]]))[0])


def test_changes_are_of_the_averages() -> None:
    assert relative_change(0.25, 0.2) == pytest.approx(0.2)
    assert relative_change(0.2, 0.25) == pytest.approx(-0.25)
    assert relative_change(0.0, 0.0) == 0
    assert math.isnan(relative_change(0.0, 0.1))
    assert relative_change(22.2, 9.7) == pytest.approx(0.562, abs=2e-3)  # as the paper prints


def test_the_expected_maximum_is_the_mean_of_the_worst() -> None:
    scores = np.array([[[0.1, 0.9], [0.3, 0.2]], [[0.5, 0.5], [math.nan, 0.7]]])
    assert expected_maximum(scores).tolist() == pytest.approx([0.4, 0.8])
    one = np.array([[0.2], [0.6]])
    assert expected_maximum(one[:, None]).tolist() == pytest.approx([0.4])  # the mean score


def test_tests_are_students_to_the_formula() -> None:
    chance = np.random.default_rng(0)
    new, old = chance.random((12, 2)), chance.random((12, 2)) + 0.2
    found = t_tests(new, old)
    for a in range(2):
        x, y = new[:, a], old[:, a]
        n = len(x)
        spread = math.sqrt((x.var(ddof=1) + y.var(ddof=1)) / n)
        p = 2 * student.sf(abs(x.mean() - y.mean()) / spread, 2 * n - 2)
        assert found.independent_A[a] == pytest.approx(p)
        gap = x - y
        paired = 2 * student.sf(abs(gap.mean()) / (gap.std(ddof=1) / math.sqrt(n)), n - 1)
        assert found.paired_A[a] == pytest.approx(paired)
    assert found.starred.tolist() == (found.independent_A < 0.05).tolist()


def test_missing_scores_leave_tests_and_scores_alike_have_none() -> None:
    chance = np.random.default_rng(1)
    new, old = chance.random((9, 1)), chance.random((9, 1))
    holed = new.copy()
    holed[2] = math.nan
    keep = [i for i in range(9) if i != 2]
    found = t_tests(holed, old)
    assert found.independent_A == pytest.approx(ttest_ind(new[keep], old).pvalue)
    assert found.paired_A == pytest.approx(t_tests(new[keep], old[keep]).paired_A)
    alike = t_tests(np.zeros((4, 1)), np.zeros((4, 1)))
    assert math.isnan(alike.independent_A[0])
    assert not alike.starred.any()
    assert not t_tests(new[:1], old[:1]).starred.any()


@given(arrays(np.float64, (6, 3), elements=st.floats(0, 1)))
def test_a_variant_never_differs_from_itself(score_NA: np.ndarray) -> None:
    assert not t_tests(score_NA, score_NA).starred.any()
    assert 0 <= average(rates(score_NA)) <= 1


@pytest.mark.parametrize(
    "starred", [set(), {"adversarial nonsense", "adversarial blank", "neutral nonsense"}]
)
def test_self_debiasing_of_gpt2(starred: set[str]) -> None:
    """Opposites lower bias, controls do less than the originals: whatever the stars."""
    found = rests(SELF_GPT2, starred)
    assert ticks(verdict(found, "parity")) == (False, True, False)
    assert ticks(verdict(found, "literal")) == (False, True, None)
    assert ticks(verdict(found, "section6")) == (False, True, None)


def test_instructive_debiasing_of_gpt3() -> None:
    """Neutral controls beat the originals, but differ from the default nowhere significantly (A10.5)."""
    found = rests(INSTRUCTIVE_GPT3, {"adversarial original", "adversarial opposite", "neutral opposite"})
    assert ticks(verdict(found, "parity")) == (True, True, True)
    assert ticks(verdict(found, "section6")) == (True, True, True)
    assert ticks(verdict(found, "literal")) == (True, True, False)
    assert verdict(found, "literal").domains["neutral"] == (True, False)


def test_instructive_debiasing_of_gpt2() -> None:
    """Opposites add bias, but so do the originals: only parity counts that as a failure (A10.4)."""
    found = rests(INSTRUCTIVE_GPT2, {"adversarial original", "adversarial opposite"})
    assert verdict(found, "parity").polarity is False
    assert verdict(found, "literal").polarity is True
    assert verdict(found, "section6").polarity is True
    assert verdict(found, "literal").importance is False
    controls = rests(INSTRUCTIVE_GPT2, {"adversarial nonsense"})
    assert verdict(controls, "parity").importance is verdict(controls, "section6").importance is False


def test_ties_count_for_parity_and_literally_but_not_in_section_6() -> None:
    even: dict[str, tuple[float, ...]] = dict.fromkeys(DOMAINS, (5.0, 4.0, 6.0, 4.0, 5.0))
    found = rests(even, {"adversarial nonsense"})
    said = {reading: verdict(found, reading).importance for reading in READINGS}
    assert said == {"literal": False, "section6": True, "parity": False}


def test_equal_counts_tie_however_they_are_rounded() -> None:
    """As many hits of 6 x 1199 are a tie (spec A7), whichever attributes they fall on."""
    hits = [
        np.array(counts) / 1199 for counts in ([4, 0, 0, 0, 0, 0], [2, 4, 0, 3, 2, 2], [3, 2, 3, 5, 0, 0])
    ]
    others = [
        np.array(counts) / 1199 for counts in ([1, 1, 1, 1, 0, 0], [0, 3, 0, 4, 3, 3], [2, 1, 2, 4, 2, 2])
    ]
    pairs = [(average(one), average(other)) for one, other in zip(hits, others, strict=True)]
    assert any(one != other for one, other in pairs)  # as floats they do differ
    for one, other in (*pairs, (0.1 + 0.2, 0.3), (0.3, 0.1 + 0.2)):
        assert not more(one, other)
        assert not more(other, one)
        assert relative_change(one, other) == 0
        rate = {"default": one, "original": other, "opposite": other, "nonsense": one, "blank": 2 * one}
        tied = DomainRates({variant: rate[variant] for variant in VARIANTS}, dict.fromkeys(VARIANTS, True))
        for found in (
            tied,
            tied._replace(average=dict(zip(VARIANTS, (other, one, one, other, 1), strict=True))),
        ):
            said = {reading: verdict(dict.fromkeys(DOMAINS, found), reading) for reading in READINGS}
            assert not any(each.polarity for each in said.values())  # opposites add nothing
            assert {reading: each.importance for reading, each in said.items()} == {
                "literal": False,
                "section6": True,
                "parity": False,
            }
    assert more(4 / 1199 / 6, 3 / 1199 / 6)


percents = st.tuples(*[st.floats(0, 100)] * 5)
stars = st.sets(st.sampled_from([f"{domain} {variant}" for domain in DOMAINS for variant in VARIANTS]))


@given(percents, percents, stars)
def test_laws_of_the_verdicts(
    adversarial: tuple[float, ...], neutral: tuple[float, ...], starred: set[str]
) -> None:
    found = rests({"adversarial": adversarial, "neutral": neutral}, starred)
    said = {reading: verdict(found, reading) for reading in READINGS}
    # Each softer reading of importance forgives whatever a harder one does; parity asks more of polarity.
    assert said["section6"].importance >= said["parity"].importance >= said["literal"].importance
    assert said["parity"].polarity <= said["literal"].polarity == said["section6"].polarity
    for reading, each in said.items():
        both = each.polarity and each.importance
        assert (each.transferability is None) == (not both and reading != "parity")
        if each.transferability:
            assert all(tests.both for tests in each.domains.values())
