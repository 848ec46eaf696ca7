"""A declared protocol: its cells, its paired changes against naive loops, and what it says."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t

from interventune.evaluation.protocol import (
    Protocol,
    Results,
    Said,
    Statistic,
    View,
    estimate,
    mean,
    share,
)
from interventune.evaluation.protocols.feature_bias.command import over_strata
from interventune.metrics.intervals import interval_of_change

Rows = list[dict[str, Any]]
GAP = Statistic("gap", ("x", "y"), lambda sums_RC: (sums_RC[:, 1] - sums_RC[:, 2]) / sums_RC[:, 0])
PROTOCOL = Protocol(
    title="T",
    unit="story",
    item=("id",),
    by=("advice", "variant", "kind"),
    cells=[("advice", "variant"), ("advice", "variant", "kind")],
    compared=("advice",),
    measures={
        "right": "right",
        "far": mean("how far", "x"),
        "gap": GAP,
        "strata": over_strata("s", "right"),
    },
    views=[View("All", ("variant",)), View("By kind", ("variant", "kind"))],
    headline=[
        Said("right", "right", variant={"os", "ts"}),
        Said("right", "right at once", variant="os"),
    ],
    good="many",
)


def made(checkpoint: str, values: Sequence[tuple[int, float | None]], **more: Any) -> Rows:
    """A row for each (story, value); None is a failure."""
    place = {"checkpoint": checkpoint, "advice": "none", "variant": "os", "kind": "a", **more}
    rows: Rows = []
    for i, (story, value) in enumerate(values):
        row = {**place, "id": i, "story": story}
        failed, stratum = {"failure": "timeout"}, 2 * story + i % 2
        number = {"right": value, "x": 3 * (value or 0), "y": i % 3, "stratum": stratum}
        rows.append(row | (failed if value is None else number))
    return rows


def asked(values: Sequence[tuple[int, float | None]]) -> Rows:
    """The same as an answerer's rows, without its name."""
    return [
        {key: value for key, value in row.items() if key != "checkpoint"}
        for row in made("", values)
    ]


def results(*parts: Rows, protocol: Protocol = PROTOCOL) -> Results:
    rows = [row for part in parts for row in part]
    return protocol.results(rows, list(dict.fromkeys(row["checkpoint"] for row in rows)))


def number(
    found: Results, measure: str, checkpoint: str, against: str = "", **cell: Any
) -> dict[str, Any]:
    row = found.at(
        measure,
        checkpoint=checkpoint,
        against=against,
        **{"advice": "none", "variant": "os"} | cell,
    )
    assert row is not None
    return row


def naive_change(
    first: Rows, other: Rows, of: Callable[[Rows], float], *, share: bool
) -> tuple[float, float, float]:
    """The change over the questions that both answered, and its interval: leave out stories on both
    sides.
    """
    pairs = [
        (a, b) for a in first for b in other if a["id"] == b["id"] and "right" in a and "right" in b
    ]
    stories = {a["story"] for a, _ in pairs}
    value, *without = (
        of([b for a, b in pairs if a["story"] != story])
        - of([a for a, _ in pairs if a["story"] != story])
        for story in ("none", *stories)
    )
    error = math.sqrt((1 - 1 / len(stories)) * sum((other - value) ** 2 for other in without))
    if share:
        square = fmean((b["right"] - a["right"]) ** 2 for a, b in pairs)
        return value, *interval_of_change(value, error, square, len(stories))
    half = t.ppf(0.975, len(stories) - 1) * error
    return value, value - half, value + half


def mean_over_strata(rows: Rows) -> float:
    strata = {row["stratum"] for row in rows}
    return fmean(fmean(row["right"] for row in rows if row["stratum"] == s) for s in strata)


def values(seed: int, failures: bool = True) -> list[tuple[int, float | None]]:
    draw = np.random.default_rng(seed)
    story_N = np.random.default_rng(0).integers(0, 7, 30)
    return [
        (
            int(story),
            None if failures and draw.random() < 0.2 else float(draw.random() < 0.3 + 0.1 * seed),
        )
        for story in story_N
    ]


@pytest.mark.parametrize(
    ("measure", "share", "of"),
    [
        ("right", True, lambda rows: np.mean([row["right"] for row in rows])),
        ("strata", True, mean_over_strata),
        ("far", False, lambda rows: np.mean([row["x"] for row in rows])),
        ("gap", False, lambda rows: np.mean([row["x"] - row["y"] for row in rows])),
    ],
)
def test_a_change_matches_a_naive_loop(
    measure: str, share: bool, of: Callable[[Rows], float]
) -> None:
    first, other = made("a", values(1)), made("b", values(3))
    row = number(results(first, other), measure, "b", against="a")
    expected = naive_change(first, other, of, share=share)
    assert [row["value"], row["low"], row["high"]] == pytest.approx(expected)
    both = {row["id"] for row in first if "right" in row} & {
        row["id"] for row in other if "right" in row
    }
    assert (row["n"], row["units"]) == (
        len(both),
        len({row["story"] for row in first if row["id"] in both}),
    )


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=20
    )
)
def test_change_of_a_against_b_is_minus_that_of_b_against_a(
    rows: list[tuple[int, float, float]],
) -> None:
    a, b = (pd.DataFrame([(row[0], row[i]) for row in rows], columns=["unit", "x"]) for i in (1, 2))
    statistic = share("x", "x")
    there, back = estimate(statistic, b, a), estimate(statistic, a, b)
    assert there.value == pytest.approx(-back.value)
    assert there.interval == pytest.approx((-back.interval[1], -back.interval[0]), nan_ok=True)


def test_units_without_a_question_that_counts_are_no_units() -> None:
    """Precision of unknown: of 30 stories, three hold an answer of unknown."""
    precision = Statistic(
        "p", ("said", "right"), lambda s: s[:, 2] / s[:, 1], lambda s: s[1], limits=(0, 1)
    )
    rows = pd.DataFrame(
        {"unit": range(30), "said": [1.0] * 3 + [0.0] * 27, "right": [1.0, 0, 1] + [0.0] * 27}
    )
    found = estimate(precision, rows)
    assert (found.n, found.units) == (3, 3)
    assert found.interval == pytest.approx(estimate(share("p", "right"), rows[:3]).interval)


def test_the_nth_of_equal_questions_pairs_with_the_nth() -> None:
    twice = [(0, 1.0), (1, 0.0), (2, 1.0)]
    a, b = made("a", twice), made("b", twice)
    for row in (*a, *b):
        row["id"] = 5
    assert number(results(a, b[:2]), "right", "b", against="a")["n"] == 2
    assert number(results(a, b), "far", "b", against="a")["value"] == 0


@pytest.mark.parametrize("kind", ["", None])
def test_rows_count_for_the_entries_whose_dimensions_they_have(kind: str | None) -> None:
    rows = made("a", [(s, 1.0) for s in range(6)]) + made(
        "a", [(s, 0.0) for s in range(6, 9)], kind=kind
    )
    found = results(rows)
    assert (number(found, "right", "a")["n"], number(found, "right", "a", kind="a")["n"]) == (9, 6)
    assert number(found, "failed", "a")["value"] == 0


@pytest.mark.parametrize("failing", [{"checkpoint": "one"}, {"advice": "none"}])
def test_changes_are_since_the_first_value_though_it_has_no_numbers(
    failing: dict[str, str],
) -> None:
    def rows(name: str) -> Iterator[dict[str, Any]]:
        for advice in ("none", "b", "a"):
            place = {"checkpoint": name, "advice": advice}
            failed = place.items() >= failing.items()
            yield from made(values=[(0, None)] * 9 if failed else values(1), **place)

    evaluation = PROTOCOL.run(rows, {name: name for name in ("one", "two", "three")}, opened=str)
    frame, (against,) = evaluation.results.frame, failing.values()
    against = against if "checkpoint" in failing else f"advice={against}"
    assert set(frame["against"]) == {"", "one", "advice=none"}
    assert set(frame.loc[frame["against"] == against, "measure"]) == {"failed"}
    assert any(
        f"right since {against}, how far since {against}" in note for note in evaluation.notes
    )


def test_a_report_of_two_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """The headline says the change with its interval; a table is there though its dimension has one
    value.
    """
    sets = {"one": values(1), "two": values(3), "dumb": [(0, None)] * 4}

    def rows(name: str) -> Iterator[dict[str, Any]]:
        yield from asked(sets[name])

    evaluation = PROTOCOL.run(rows, {name: name for name in ("one", "two")}, opened=str)
    change = number(evaluation.results, "right", "two", against="one")
    assert f"+{100 * change['value']:.0f} points [" in evaluation.headline
    assert f"n {change['n']} of " in evaluation.headline
    assert "right (os)" in evaluation.headline
    assert "right at once (os)" not in evaluation.headline  # the words say which
    whole, by_kind = evaluation.tables()
    assert whole.header == ("measure", "one", "two", "two - one", "n")
    assert by_kind.header == ("measure", "kind", *whole.header[1:])
    assert any("timeout" in note for note in evaluation.notes)
    with pytest.raises(ValueError, match="dumb: 4 timeout"):
        PROTOCOL.run(rows, {"dumb": "dumb"}, opened=str)
