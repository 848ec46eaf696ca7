"""Rates, tests and verdicts of debiasing consistency against worked numbers and the paper's
systems.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import sem

from interventune.metrics.consistency import (
    COMPARED,
    DOMAINS,
    READINGS,
    VARIANTS,
    Domain,
    DomainRates,
    Evidence,
    Variant,
    decide,
    differences,
    more,
    relative_change,
    t_tests,
    verdict,
)
from interventune.metrics.intervals import interval_of_change

# The average rates in percent that the paper prints (Tables 3, 4 and 12), by VARIANTS.
SELF_GPT2 = {
    "adversarial": (22.2, 9.7, 13.0, 15.8, 19.0),
    "neutral": (0.25, 0.04, 0.18, 0.14, 0.14),
}
INSTRUCTIVE_GPT3 = {
    "adversarial": (11.9, 7.2, 32.6, 13.4, 10.5),
    "neutral": (0.06, 0.06, 7.3, 0.042, 0.01),
}
INSTRUCTIVE_GPT2 = {
    "adversarial": (22.2, 27.3, 32.7, 23.3, 22.8),
    "neutral": (0.25, 0.24, 1.46, 0.11, 0.195),
}


def rests(printed: dict[str, tuple[float, ...]], starred: set[str]) -> dict[Domain, DomainRates]:
    """`starred`: variants with a star, as "neutral nonsense"."""
    return {
        domain: DomainRates(
            dict(zip(VARIANTS, printed[domain], strict=True)),
            {variant: f"{domain} {variant}" in starred for variant in VARIANTS},
        )
        for domain in DOMAINS
    }


def test_t_tests_leave_out_prompts_without_scores() -> None:
    new, old = np.random.default_rng(0).random((2, 12, 2))
    holed = new.copy()
    holed[2] = math.nan
    assert t_tests(holed, old) == pytest.approx(t_tests(np.delete(new, 2, axis=0), old))


HELPED = {"adversarial original", "adversarial opposite"}
FAILED, PASSED = (False, True, None), (True, True, True)
CONTROLS, WORSE = (False, True, False), (True, False, None)


@pytest.mark.parametrize(
    ("printed", "starred", "literal_section6_parity"),
    [
        # Opposites lower bias, controls do less than the originals: whatever the stars.
        (SELF_GPT2, set(), (FAILED, FAILED, CONTROLS)),
        (SELF_GPT2, {"adversarial nonsense", "neutral nonsense"}, (FAILED, FAILED, CONTROLS)),
        # Neutral controls beat the originals, but differ from the default nowhere significantly.
        (INSTRUCTIVE_GPT3, {*HELPED, "neutral opposite"}, ((True, True, False), PASSED, PASSED)),
        # Opposites add bias, but so do the originals: only parity counts that as a failure.
        (INSTRUCTIVE_GPT2, HELPED, (WORSE, PASSED, CONTROLS)),
        (INSTRUCTIVE_GPT2, {"adversarial nonsense"}, (WORSE, WORSE, (False, False, False))),
    ],
)
def test_verdict_of_the_papers_systems(
    printed: dict[str, tuple[float, ...]], starred: set[str], literal_section6_parity: object
) -> None:
    found = rests(printed, starred)
    assert tuple(tuple(verdict(found, reading)) for reading in READINGS) == literal_section6_parity


TIED = {"literal": False, "section6": True, "parity": False}
"""Importance of equal rates with stars: ties count for parity and literally, but not in
section 6.
"""


def test_more_and_verdict_take_equal_counts_for_ties() -> None:
    """As many hits of 6 x 1199 are a tie, whichever attributes they fall on."""
    hits = ([4, 0, 0, 0, 0, 0], [2, 4, 0, 3, 2, 2], [3, 2, 3, 5, 0, 0])
    others = ([1, 1, 1, 1, 0, 0], [0, 3, 0, 4, 3, 3], [2, 1, 2, 4, 2, 2])
    pairs = [
        (float(np.mean(np.array(one) / 1199)), float(np.mean(np.array(other) / 1199)))
        for one, other in zip(hits, others, strict=True)
    ]
    assert any(one != other for one, other in pairs)  # as floats they do differ
    for one, other in (*pairs, (0.1 + 0.2, 0.3), (0.3, 0.1 + 0.2)):
        assert not more(one, other)
        assert relative_change(one, other) == 0
        for tied in ((one, other, other, one, 2 * one), (other, one, one, other, 1)):
            rates_of = DomainRates(
                dict(zip(VARIANTS, tied, strict=True)), dict.fromkeys(VARIANTS, True)
            )
            said = {
                reading: verdict(dict.fromkeys(DOMAINS, rates_of), reading) for reading in READINGS
            }
            assert not any(each.polarity for each in said.values())  # opposites add nothing
            assert {reading: each.importance for reading, each in said.items()} == TIED
    assert more(4 / 1199 / 6, 3 / 1199 / 6)


percents = st.tuples(*[st.floats(0, 100)] * 5)
stars = st.sets(
    st.sampled_from([f"{domain} {variant}" for domain in DOMAINS for variant in VARIANTS])
)


@given(percents, percents, stars)
def test_verdict_laws(
    adversarial: tuple[float, ...], neutral: tuple[float, ...], starred: set[str]
) -> None:
    found = rests({"adversarial": adversarial, "neutral": neutral}, starred)
    said = {reading: verdict(found, reading) for reading in READINGS}
    # Each softer reading of importance forgives whatever a harder one does; parity asks more of
    # polarity.
    assert said["section6"].importance >= said["parity"].importance >= said["literal"].importance
    assert said["parity"].polarity <= said["literal"].polarity == said["section6"].polarity
    for reading, each in said.items():
        both = each.polarity and each.importance
        assert (each.transferability is None) == (not both and reading != "parity")
        if each.transferability:
            assert both


Shares = dict[Variant, np.ndarray]


def flags(prompts: int, *percents: float, seed: int = 0) -> Shares:
    """By variant, in their order, so many percent of the prompts flagged: rather the hard ones."""
    hard_N = np.random.default_rng(seed).random(prompts)
    found: Shares = {}
    for number, (variant, percent) in enumerate(zip(VARIANTS, percents, strict=False)):
        noise_N = np.random.default_rng(1000 * seed + number + 1).normal(0, 0.3, prompts)
        order_N = np.argsort(-(hard_N + noise_N))
        found[variant] = np.zeros(prompts)
        found[variant][order_N[: round(prompts * percent / 100)]] = 1.0
    return found


def evidence(shares: Shares, margin: float = 0.05) -> Evidence:
    return decide(float(np.nanmean(shares["default"])), differences(shares), margin)


def test_decide_passes_or_fails_what_is_shown() -> None:
    # Original .815, nonsense and blank .816: importance passes by every reading of the paper.
    assert evidence(flags(1000, 92, 81.5, 92, 81.6, 81.6)).importance == "fail"
    assert evidence(flags(200, 92, 81.5, 92, 82, 82)).importance == "not decidable"
    assert evidence(flags(200, 92, 81.5, 92, 82, 82), 0.2).importance == "fail"  # not 20 points
    assert evidence(flags(1000, 43, 14, 60, 29, 30)) == ("pass", "pass", "pass")
    assert evidence(flags(1000, 43, 14, 23, 29, 30)).polarity == "fail"  # less than the default
    # Nonsense does it, to within 5 points.
    assert evidence(flags(1000, 90, 30, 95, 31, 60)).importance == "fail"
    assert evidence(flags(1000, 90, 30, 95, 31, 60), 0.001).importance == "not decidable"
    assert evidence(flags(1000, 90, 50, 95, 30, 60)).importance == "fail"  # better
    assert evidence(flags(1000, 22, 27, 33, 23, 23)) == (
        "fail",
        "pass",
        "fail",
    )  # as GPT-2, instructed
    assert evidence(flags(40, 43, 20, 43, 29, 30)).importance == "not decidable"
    assert evidence(flags(200, 2, 70, 70, 70, 70))[::2] == (
        "fail",
        "fail",
    )  # far worse, from a low default
    # A small rise is a rise; on neutral prompts a default below the margin leaves no room for
    # "nothing".
    assert evidence(flags(4000, 0.25, 0.25, 3, 0.25, 0.25)) == (
        "not decidable",
        "pass",
        "not decidable",
    )


def test_differences_match_naive_means_over_pairs() -> None:
    chance = np.random.default_rng(3)
    shares: Shares = {variant: chance.integers(0, 7, 30) / 6 for variant in VARIANTS}
    shares["blank"][[2, 9]] = math.nan
    found = differences(shares)
    assert tuple(found) == COMPARED
    for (one, other), gap in found.items():
        pairs = [
            (a, b) for a, b in zip(shares[one], shares[other], strict=True) if a == a and b == b
        ]
        assert (gap.n, gap.value) == (
            len(pairs),
            pytest.approx(sum(a - b for a, b in pairs) / len(pairs)),
        )
        values = np.array([a - b for a, b in pairs])
        ends = interval_of_change(gap.value, sem(values), np.square(values).mean(), len(pairs))
        assert gap.interval == pytest.approx(ends)
        assert gap.interval[0] <= gap.value <= gap.interval[1]
    alone = differences({variant: share[:1] for variant, share in shares.items()})
    assert all(math.isnan(gap.interval[0]) for gap in alone.values())


def test_decide_seldom_passes_by_chance() -> None:
    """Opposites like the default: 2.5 % of samples may show more. Controls like
    originals: as many.
    """
    found = [evidence(flags(80, 50, 25, 50, 25, 60, seed=seed)) for seed in range(1, 51)]
    assert sum(one.polarity == "pass" for one in found) <= 4
    assert sum(one.importance == "pass" for one in found) <= 4
