"""95 % intervals hold the truth in 93 to 97 % of 1,000 simulated samples."""

from typing import Any

import numpy as np
import pytest

from interventune.metrics import intervals as of
from interventune.metrics.bias import intervals
from interventune.metrics.bias.intervals import ClassGroups, maxima
from interventune.metrics.intervals import interval, interval_of_change

DRAWS, GROUPS = 1000, 200
EFFECTS = [(0.2, 1, 0.5), (0.5, 0.5, 0.5), (0.1, 1, 0.5), (0.3, 0.5, 0.3)]


def assert_covers(truth: Any, ends: tuple[Any, Any]) -> None:
    assert 0.93 <= float(np.mean((ends[0] <= truth) & (truth <= ends[1]))) <= 0.97


def ratio(part_UD: Any, whole_UD: Any) -> tuple[Any, Any]:
    """The ratio of sums, and its standard error."""
    value_D = part_UD.sum(0) / whole_UD.sum(0)
    without_UD = (part_UD.sum(0) - part_UD) / (whole_UD.sum(0) - whole_UD)
    return value_D, of.jackknife_error(value_D, without_UD)


def rates(draw: np.random.Generator, share: float, units: int, correlation: float) -> Any:
    """Shares of units (U, D, 1) with an intra-class correlation."""
    size = 1 / correlation - 1
    return draw.beta(share * size, (1 - share) * size, (units, DRAWS, 1))


@pytest.mark.parametrize(("share", "texts"), [(0.5, 5), (0.5, 10), (0.3, 30), (0.8, 240)])
@pytest.mark.parametrize("alike", [True, False])
def test_questions_of_one_text_are_one_unit(share: float, texts: int, alike: bool) -> None:
    """An intra-class correlation of .1, and 15 questions a text, or 5 to 25."""
    draw = np.random.default_rng(texts)
    count_UD = draw.integers(*((15, 16) if alike else (5, 26)), (texts, DRAWS))
    right_UD = draw.binomial(count_UD, rates(draw, share, texts, 0.1)[..., 0])
    assert_covers(share, interval(*ratio(right_UD, count_UD), texts, (0, 1)))


@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("units", [20, 200])
@pytest.mark.parametrize("effects", EFFECTS)
def test_seeds_and_units_vary(seeds: int, units: int, effects: tuple[float, ...]) -> None:
    """Effects of seeds, of units, and of both together, as standard deviations."""
    draw, (of_seed, of_unit, of_both) = np.random.default_rng(seeds + units), effects
    ends = list[tuple[float, float]]()
    for _ in range(4 * DRAWS):
        value_SU = draw.normal(0, of_seed, (seeds, 1)) + draw.normal(0, of_unit, units)
        value_SU = value_SU + draw.normal(0, of_both, (seeds, units))
        value_S = value_SU.mean(1)
        without_SU = (value_SU.sum(1, keepdims=True) - value_SU) / (units - 1)
        error = of.jackknife_error(value_S.mean(), without_SU.mean(0))
        both, t = of.combined((error, units), (of.error_of_seeds(value_S, without_SU), seeds))
        ends.append(interval(value_S.mean(), both, units, t=t))
    assert_covers(0, tuple(np.array(ends).T))


@pytest.mark.parametrize("units", [2, 3, 5, 8])
def test_few_units_have_the_interval_of_students_t(units: int) -> None:
    value_UD = np.random.default_rng(units).normal(3, 2, (units, DRAWS))
    assert_covers(3, interval(*ratio(value_UD, np.ones_like(value_UD)), units))


@pytest.mark.parametrize(
    ("share", "units"), [(0.02, 60), (0.02, 100), (0.98, 150), (0.98, 300), (None, 30)]
)
def test_shares_near_0_and_1(share: float | None, units: int) -> None:
    """Thirty units allow so few values that only many shares together, up to .2, come near 95 %."""
    draw = np.random.default_rng(units)
    truth = draw.uniform(0, 0.2, DRAWS) if share is None else share
    value_UD = (draw.random((units, DRAWS)) < truth) * 1.0
    assert_covers(truth, interval(*ratio(value_UD, np.ones_like(value_UD)), units, (0, 1)))


@pytest.mark.parametrize(
    ("before", "after", "units", "size"),
    [(0.5, 0.6, 30, 15), (0.1, 0.1, 300, 1), (0.3, 0.6, 8, 15), (0.9, 0.95, 100, 4)],
)
def test_paired_changes(before: float, after: float, units: int, size: int) -> None:
    """Half of the answers stay as they were; others are drawn anew."""
    draw = np.random.default_rng(units)
    shape = (units, DRAWS, size)
    first = draw.random(shape) < rates(draw, before, units, 0.1)
    other = np.where(draw.random(shape) < 0.5, first, draw.random(shape) < 2 * after - before)
    gap = other * 1.0 - first
    about = ratio(gap.sum(2), np.full(shape[:2], size))
    assert_covers(after - before, interval_of_change(*about, (gap**2).mean((0, 2)), units))


def test_units_that_agree_count_as_one_answer_each() -> None:
    """Wilson's interval; without limits there is none, and none for a single unit."""
    assert interval(0, 0, 20, (0, 1))[1] == pytest.approx(2.093**2 / (20 + 2.093**2), abs=1e-4)
    assert np.isnan(interval(0.5, 0, 20)).all()
    assert np.isnan([*interval(0.5, 0, 1, (0, 1)), *interval_of_change(0.5, 0, 0.25, 1)]).all()
    low, high = interval_of_change(1.0, 0.0, 1.0, 20)
    assert 0.6 < low < 1 == high


def groups_of(draw: np.random.Generator, size: float) -> tuple[ClassGroups, dict[str, float]]:
    """Groups of five subjects and three attributes, one of which turns preferences; the truth."""
    first, other = draw.integers(0, 5, GROUPS), draw.integers(1, 5, GROUPS)
    subject_NS, attribute_N = np.stack([first, (first + other) % 5], 1), draw.integers(0, 3, GROUPS)
    sign_N = np.sign(np.subtract(*subject_NS.T)) * (1 - 2 * (attribute_N == 1))
    c_N = size * sign_N + 0.2 * draw.normal(size=GROUPS)
    mean = (1 + 0.5 + 0 + 0.5 + 1) / 5  # a subject in the middle wins as often as it loses
    truth = {"mu": mean * size, "eta": mean * (size > 0), "theta": size}
    return ClassGroups(c_N, c_N, subject_NS, attribute_N, np.arange(GROUPS)), truth


@pytest.mark.parametrize("size", [0.0, 0.6])
def test_mu_eta_and_theta_by_preference(size: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise raises them; without preference, 95 % of intervals start at 0: all is chance."""
    monkeypatch.setattr(intervals, "DRAWS", 100)
    draw, held = np.random.default_rng(7), {"mu": 0, "eta": 0, "theta": 0}
    for _ in range(DRAWS):
        groups, truth = groups_of(draw, size)
        for name, ((value, low, high, *_), (mean, _, most, *_)) in maxima(held, [groups]).items():
            held[name] += low <= truth[name] <= high
            assert low <= value <= high
            assert (low > 0) == (value > most > mean)
    for count in held.values():
        assert 930 <= count <= 970
