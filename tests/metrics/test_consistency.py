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


def test_rates_changes_and_the_expected_maximum() -> None:
    assert rates(np.array([[0.5], [0.49], [0.9]])).tolist() == pytest.approx([2 / 3])  # a half counts
    assert rates(np.array([[[0.5, 0.1], [0.2, math.nan]], [[0.7, 0.6], [0.1, 0.5]]])).tolist() == [0.5, 2 / 3]
    assert math.isnan(rates(np.array([[math.nan]]))[0])
    assert relative_change(0.2, 0.25) == pytest.approx(-0.25)
    assert relative_change(22.2, 9.7) == pytest.approx(0.562, abs=2e-3)  # as the paper prints
    assert relative_change(0.0, 0.0) == 0
    assert math.isnan(relative_change(0.0, 0.1))
    scores = np.array([[[0.1, 0.9], [0.3, 0.2]], [[0.5, 0.5], [math.nan, 0.7]]])
    assert expected_maximum(scores).tolist() == pytest.approx([0.4, 0.8])  # the mean of the worst


def test_tests_are_students_to_the_formula_and_leave_out_missing_scores() -> None:
    chance = np.random.default_rng(0)
    new, old = chance.random((12, 2)), chance.random((12, 2)) + 0.2
    found, n = t_tests(new, old), 12
    for a in range(2):
        x, y = new[:, a], old[:, a]
        spread = math.sqrt((x.var(ddof=1) + y.var(ddof=1)) / n)
        p = 2 * student.sf(abs(x.mean() - y.mean()) / spread, 2 * n - 2)
        assert found.independent_A[a] == pytest.approx(p)
        gap = x - y
        paired = 2 * student.sf(abs(gap.mean()) / (gap.std(ddof=1) / math.sqrt(n)), n - 1)
        assert found.paired_A[a] == pytest.approx(paired)
    assert found.starred.tolist() == (found.independent_A < 0.05).tolist()
    holed, keep = new.copy(), np.arange(n) != 2
    holed[2] = math.nan
    assert t_tests(holed, old).independent_A == pytest.approx(ttest_ind(new[keep], old).pvalue)
    assert t_tests(holed, old).paired_A == pytest.approx(t_tests(new[keep], old[keep]).paired_A)


@given(arrays(np.float64, (6, 3), elements=st.floats(0, 1)))
def test_a_variant_never_differs_from_itself(score_NA: np.ndarray) -> None:
    assert not t_tests(score_NA, score_NA).starred.any()
    assert not t_tests(score_NA[:1], 1 - score_NA[:1]).starred.any()
    assert 0 <= average(rates(score_NA)) <= 1


STARRED = {
    "self": ("adversarial nonsense", "adversarial blank", "neutral nonsense"),
    "gpt3": ("adversarial original", "adversarial opposite", "neutral opposite"),
    "gpt2": ("adversarial original", "adversarial opposite"),
    "controls": ("adversarial nonsense",),
}
FAILED, PASSED = (False, True, None), (True, True, True)


@pytest.mark.parametrize(
    ("printed", "starred", "literal_section6_parity"),
    [
        # Opposites lower bias, controls do less than the originals: whatever the stars.
        (SELF_GPT2, (), (FAILED, FAILED, (False, True, False))),
        (SELF_GPT2, STARRED["self"], (FAILED, FAILED, (False, True, False))),
        # Neutral controls beat the originals, but differ from the default nowhere significantly (A10.5).
        (INSTRUCTIVE_GPT3, STARRED["gpt3"], ((True, True, False), PASSED, PASSED)),
        # Opposites add bias, but so do the originals: only parity counts that as a failure (A10.4).
        (INSTRUCTIVE_GPT2, STARRED["gpt2"], ((True, False, None), PASSED, (False, True, False))),
        (
            INSTRUCTIVE_GPT2,
            STARRED["controls"],
            ((True, False, None), (True, False, None), (False, False, False)),
        ),
    ],
)
def test_the_papers_systems(
    printed: dict[str, tuple[float, ...]], starred: tuple[str, ...], literal_section6_parity: object
) -> None:
    found = rests(printed, set(starred))
    assert tuple(verdict(found, reading)[:3] for reading in READINGS) == literal_section6_parity


TIED = {"literal": False, "section6": True, "parity": False}
"""Importance of equal rates with stars: ties count for parity and literally, but not in section 6."""


def test_equal_counts_tie_however_they_are_rounded() -> None:
    """As many hits of 6 x 1199 are a tie (spec A7), whichever attributes they fall on."""
    hits = ([4, 0, 0, 0, 0, 0], [2, 4, 0, 3, 2, 2], [3, 2, 3, 5, 0, 0])
    others = ([1, 1, 1, 1, 0, 0], [0, 3, 0, 4, 3, 3], [2, 1, 2, 4, 2, 2])
    pairs = [
        (average(np.array(one) / 1199), average(np.array(other) / 1199))
        for one, other in zip(hits, others, strict=True)
    ]
    assert any(one != other for one, other in pairs)  # as floats they do differ
    for one, other in (*pairs, (0.1 + 0.2, 0.3), (0.3, 0.1 + 0.2)):
        assert not more(one, other)
        assert relative_change(one, other) == 0
        for tied in ((one, other, other, one, 2 * one), (other, one, one, other, 1)):
            rates_of = DomainRates(dict(zip(VARIANTS, tied, strict=True)), dict.fromkeys(VARIANTS, True))
            said = {reading: verdict(dict.fromkeys(DOMAINS, rates_of), reading) for reading in READINGS}
            assert not any(each.polarity for each in said.values())  # opposites add nothing
            assert {reading: each.importance for reading, each in said.items()} == TIED
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
