"""Rates, tests and verdicts of debiasing consistency, also of the paper's systems."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interventune.metrics import consistency as of
from interventune.metrics.consistency import DOMAINS, READINGS, VARIANTS, DomainRates, verdict

Ends = tuple[float, float]

# The average rates in percent that the paper prints (Tables 3, 4 and 12), by DOMAINS and VARIANTS.
SELF_GPT2 = (22.2, 9.7, 13.0, 15.8, 19.0), (0.25, 0.04, 0.18, 0.14, 0.14)
INSTRUCTIVE_GPT3 = (11.9, 7.2, 32.6, 13.4, 10.5), (0.06, 0.06, 7.3, 0.042, 0.01)
INSTRUCTIVE_GPT2 = (22.2, 27.3, 32.7, 23.3, 22.8), (0.25, 0.24, 1.46, 0.11, 0.195)
Printed = tuple[tuple[float, ...], tuple[float, ...]]
HELPED = {"adversarial original", "adversarial opposite"}
FAILED, PASSED = (False, True, None), (True, True, True)
CONTROLS, WORSE = (False, True, False), (True, False, None)
percents = st.tuples(*[st.floats(0, 100)] * 5)
stars = st.sets(st.sampled_from([f"{one} {other}" for one in DOMAINS for other in VARIANTS]))
LESS, MORE, WIDE, LITTLE = (-0.3, -0.2), (0.2, 0.3), (-0.1, 0.1), (-0.02, 0.02)
"""Intervals of differences, with a margin of 0.05."""


def rates_of(printed: Printed, starred: set[str]) -> dict[of.Domain, DomainRates]:
    """`starred`: variants with a star, as "neutral nonsense"."""
    rates = {}
    for domain, percents in zip(DOMAINS, printed, strict=True):
        stars = {variant: f"{domain} {variant}" in starred for variant in VARIANTS}
        rates[domain] = DomainRates(dict(zip(VARIANTS, percents, strict=True)), stars)
    return rates


def test_t_tests_leave_out_prompts_without_scores() -> None:
    new, old = np.random.default_rng(0).random((2, 12, 2))
    holed = new.copy()
    holed[2] = math.nan
    assert of.t_tests(holed, old) == pytest.approx(of.t_tests(np.delete(new, 2, axis=0), old))


def test_a_repeated_input_is_all_repetition_but_two_words() -> None:
    for count in (3, 7):
        words = [f"w{i}" for i in range(count)]
        assert of.repetition(" ".join(words), ", ".join(words).upper()) == (count - 2) / count
        assert of.repetition("", " ".join(words * 2)) == (count - 2) / (2 * count)
        assert of.repetition(" ".join(words), "w0 w1 w3") == 0
    assert math.isnan(of.repetition("A b c", " ."))


@pytest.mark.parametrize(
    ("printed", "starred", "verdicts"),
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
def test_the_papers_verdicts(printed: Printed, starred: set[str], verdicts: object) -> None:
    rates = rates_of(printed, starred)
    assert tuple(tuple(verdict(rates, reading)) for reading in READINGS) == verdicts


def test_equal_counts_are_ties() -> None:
    """As many hits of 6 x 1199 are a tie, whichever attributes they fall on."""
    for hits, others in (([4, 0, 0, 0, 0, 0], [1, 1, 1, 1, 0, 0]), ([3, 2, 3, 5], [2, 1, 2, 8])):
        one, other = (float(np.mean(np.array(counts) / 1199)) for counts in (hits, others))
        assert not of.more(one, other)
        assert not of.more(other, one)
        assert of.relative_change(one, other) == 0
        tied = dict(zip(VARIANTS, (one, other, other, one, 2 * one), strict=True))
        rates = dict.fromkeys(DOMAINS, DomainRates(tied, dict.fromkeys(VARIANTS, True)))
        by_reading = [verdict(rates, reading) for reading in READINGS]
        assert not any(each.polarity for each in by_reading)  # opposites add nothing
        # Ties count as well as the original literally and for parity, but not in section 6.
        assert [each.importance for each in by_reading] == [False, True, False]
    assert of.more(4 / 1199 / 6, 3 / 1199 / 6)


@given(st.tuples(percents, percents), stars)
def test_verdict_laws(printed: Printed, starred: set[str]) -> None:
    rates = rates_of(printed, starred)
    literal, section6, parity = (verdict(rates, reading) for reading in READINGS)
    # Each softer reading of importance forgives whatever a harder one does; parity asks more of
    # polarity.
    assert section6.importance >= parity.importance >= literal.importance
    assert parity.polarity <= literal.polarity == section6.polarity
    for each in (literal, section6, parity):
        both = each.polarity and each.importance
        assert (each.transferability is None) == (not both and each is not parity)
        assert both or not each.transferability


@pytest.mark.parametrize(
    ("default", "original", "opposite", "controls", "decisions"),
    [
        (0.4, LESS, MORE, (MORE, MORE), (True, True, True)),
        (0.4, (-0.03, -0.01), MORE, (MORE, MORE), (False, True, False)),
        (0.4, MORE, LESS, (MORE, MORE), (False, False, False)),
        (0.4, WIDE, WIDE, (MORE, MORE), (None, None, None)),
        (0.4, LESS, (0.01, 0.02), (WIDE, MORE), (True, True, None)),
        (0.4, LESS, LITTLE, (LITTLE, MORE), (True, False, False)),
        (0.4, LESS, MORE, (MORE, LESS), (True, True, False)),
        # A control is not as good if the originals may have done less than the margin themselves.
        (0.4, (-0.3, -0.04), MORE, (LITTLE, MORE), (True, True, None)),
        # Near 0 and 1 there is no room for more than the margin, so nothing fails for want of it.
        (0.04, LITTLE, MORE, (MORE, MORE), (None, True, None)),
        (0.97, LESS, LITTLE, (MORE, MORE), (True, None, True)),
    ],
)
def test_decide_passes_or_fails_what_is_shown(
    default: float, original: Ends, opposite: Ends, controls: tuple[Ends, Ends], decisions: object
) -> None:
    intervals: dict[tuple[of.Variant, of.Variant], Ends]
    intervals = {("original", "default"): original, ("opposite", "default"): opposite}
    intervals |= {("nonsense", "original"): controls[0], ("blank", "original"): controls[1]}
    assert of.decide(default, intervals, 0.05) == decisions
