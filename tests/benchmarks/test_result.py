"""A ratio is that of simultaneous repetitions, and above 1 where the first system is better."""

from __future__ import annotations

import pytest

from benchmarks.result import Result


def result(*values: float, higher_is_better: bool = True) -> Result:
    return Result(benchmark="b", system="s", unit="u", values=values, higher_is_better=higher_is_better)


def test_ratios_are_taken_turn_by_turn() -> None:
    # Noise that halves both systems in one turn cancels out: 10 / 5, 5 / 2.5, 30 / 10.
    assert result(10, 5, 30).times(result(5, 2.5, 10)) == 2
    assert result(10, 5, 30).median == 10


def test_less_is_better_for_seconds() -> None:
    fast, slow = result(1, 2, 4, higher_is_better=False), result(3, 6, 12, higher_is_better=False)
    assert fast.times(slow) == 3
    assert slow.times(fast) == pytest.approx(1 / 3)


def test_systems_with_different_numbers_of_turns_do_not_compare() -> None:
    with pytest.raises(ValueError):
        result(1, 2).times(result(1, 2, 3))
