"""A declared protocol: its cells, its paired changes against naive loops, and what it says."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
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
    share,
)
from interventune.evaluation.protocols.feature_bias.command import over_strata
from interventune.metrics.intervals import interval_of_change

Rows = list[dict[str, Any]]
GAP = Statistic("gap", ("x", "y"), lambda sums_RC: (sums_RC[:, 1] - sums_RC[:, 2]) / sums_RC[:, 0])
STRATA = over_strata("s", "right")
PROTOCOL = Protocol(
    title="T",
    unit="story",
    item=("id",),
    by=("advice", "variant", "kind"),
    cells=[("advice", "variant"), ("advice", "variant", "kind")],
    compared=("advice",),
    measures={"right": "right", "far": Statistic("how far", ("x",)), "gap": GAP, "strata": STRATA},
    views=[View("All", ("variant",)), View("By kind", ("variant", "kind"))],
    headline=[
        Said("right", "right", "up", {"variant": ["os", "ts"]}),
        Said("far", "at once", "same", {"variant": "os"}),
        Said("gap", "gap", where={"variant": "os"}),
    ],
    good="many",
)


def answered(checkpoint: str, values: Sequence[tuple[int, float | None]], **more: Any) -> Rows:
    """A row for each (story, value); None is a failure."""
    place = {"checkpoint": checkpoint, "advice": "none", "variant": "os", "kind": "a", **more}
    rows: Rows = []
    for i, (story, value) in enumerate(values):
        row, stratum = {**place, "id": i, "story": story}, 2 * story + i % 2
        numbers = {"right": value, "x": 3 * (value or 0), "y": i % 3, "stratum": stratum}
        rows.append(row | ({"failure": "timeout"} if value is None else numbers))
    return rows


def results(*parts: Rows) -> Results:
    rows = pd.DataFrame(chain(*parts))
    return PROTOCOL.results(rows, [*rows["checkpoint"].unique()])


def number(results: Results, measure: str, checkpoint: str, **place: str) -> dict[str, Any]:
    row = results.at(measure, checkpoint=checkpoint, advice="none", variant="os", **place)
    assert row is not None
    return row


def naive_change(first: Rows, other: Rows, of: Callable[[Rows], float], *, share: bool) -> Any:
    """The change over the questions that both answered; the interval leaves out stories."""
    one, two = ({row["id"]: row for row in rows if "right" in row} for rows in (first, other))
    pairs = [(one[name], two[name]) for name in one if name in two]
    stories = {a["story"] for a, _ in pairs}
    parts = ([pair for pair in pairs if pair[0]["story"] != story] for story in ("none", *stories))
    value, *without = (of([b for _, b in part]) - of([a for a, _ in part]) for part in parts)
    error = math.sqrt((1 - 1 / len(stories)) * sum((other - value) ** 2 for other in without))
    if share:
        square = of([b | {"right": (b["right"] - a["right"]) ** 2} for a, b in pairs])
        return value, *interval_of_change(value, error, square, len(stories))
    half = t.ppf(0.975, len(stories) - 1) * error
    return value, value - half, value + half


def mean_over_strata(rows: Rows) -> float:
    strata = {row["stratum"] for row in rows}
    return fmean(fmean(row["right"] for row in rows if row["stratum"] == s) for s in strata)


def values(seed: int) -> list[tuple[int, float | None]]:
    draw, stories = np.random.default_rng(seed), np.random.default_rng(0).integers(0, 7, 30)
    rights = (draw.random(30) < 0.3 + 0.1 * seed).astype(float)
    failed = draw.random(30) < 0.2
    return [(int(story), None if failed[i] else rights[i]) for i, story in enumerate(stories)]


NAIVE: dict[str, Callable[[Rows], float]] = {
    "right": lambda rows: fmean(row["right"] for row in rows),
    "strata": mean_over_strata,
    "far": lambda rows: fmean(row["x"] for row in rows),
    "gap": lambda rows: fmean(row["x"] - row["y"] for row in rows),
}


@pytest.mark.parametrize("measure", NAIVE)
def test_a_change_matches_a_naive_loop(measure: str) -> None:
    first, other = answered("a", values(1)), answered("b", values(3))
    row = number(results(first, other), measure, "b", against="a")
    expected = naive_change(first, other, NAIVE[measure], share=measure in ("right", "strata"))
    assert [row["value"], row["low"], row["high"]] == pytest.approx(expected)
    one, two = ({q["id"]: q["story"] for q in rows if "right" in q} for rows in (first, other))
    both = one.keys() & two.keys()
    assert (row["n"], row["units"]) == (len(both), len({one[name] for name in both}))


ROWS = st.lists(st.tuples(st.integers(0, 4), st.floats(0, 1), st.floats(0, 1)), min_size=1)


@given(ROWS)
def test_a_change_is_minus_that_the_other_way_round(rows: list[tuple[int, float, float]]) -> None:
    table = pd.DataFrame(rows, columns=["unit", "a", "b"])
    a, b = (table[["unit", name]].rename(columns={name: "x"}) for name in "ab")
    statistic = share("x", "x")
    there, back = estimate(statistic, b, a), estimate(statistic, a, b)
    assert there.value == pytest.approx(-back.value)
    assert (there.low, there.high) == pytest.approx((-back.high, -back.low), nan_ok=True)


def test_units_without_a_question_that_counts_are_no_units() -> None:
    """Precision of unknown: of 30 stories, three hold an answer of unknown."""
    fields = ("unknown", "right")
    precision = Statistic("p", fields, lambda s: s[:, 2] / s[:, 1], lambda s: s[1], limits=(0, 1))
    unknown, right = [1.0] * 3 + [0.0] * 27, [1.0, 0, 1] + [0.0] * 27
    rows = pd.DataFrame({"unit": range(30), "unknown": unknown, "right": right})
    value = estimate(precision, rows)
    assert (value.n, value.units) == (3, 3)
    assert value[1:3] == pytest.approx(estimate(share("p", "right"), rows[:3])[1:3])


def test_the_nth_of_equal_questions_pairs_with_the_nth() -> None:
    twice = [(0, 1.0), (1, 0.0), (2, 1.0)]
    a, b = answered("a", twice), answered("b", twice)
    for row in (*a, *b):
        row["id"] = 5
    assert number(results(a, b[:2]), "right", "b", against="a")["n"] == 2
    assert number(results(a, b), "far", "b", against="a")["value"] == 0


@pytest.mark.parametrize("kind", ["", None])
def test_rows_count_for_the_entries_whose_dimensions_they_have(kind: str | None) -> None:
    rows = answered("a", [(story, 1.0) for story in range(6)])
    rows += answered("a", [(story, 0.0) for story in range(6, 9)], kind=kind)
    table = results(rows)
    assert [number(table, "right", "a", kind=part)["n"] for part in ("", "a")] == [9, 6]
    assert number(table, "failed", "a")["value"] == 0


@pytest.mark.parametrize("failing", [{"checkpoint": "one"}, {"advice": "none"}])
def test_changes_are_since_a_first_value_without_numbers(failing: dict[str, str]) -> None:
    def rows(name: str) -> Iterator[dict[str, Any]]:
        for advice in ("none", "b", "a"):
            place = {"checkpoint": name, "advice": advice}
            failed = place.items() >= failing.items()
            yield from answered(values=[(0, None)] * 9 if failed else values(1), **place)

    evaluation = PROTOCOL.run(rows, ["one", "two", "three"], opened=lambda model: model.name)
    frame, (against,) = evaluation.results.frame, failing.values()
    against = against if "checkpoint" in failing else f"advice={against}"
    assert set(frame["against"]) == {"", "one", "advice=none"}
    assert set(frame.loc[frame["against"] == against, "measure"]) == {"failed"}
    assert f"right since {against}, how far since {against}" in " ".join(evaluation.notes)


def test_a_report_of_two_checkpoints() -> None:
    """The summary has changes, with the aim's direction; a table its dimension of one value."""
    sets = {"one": values(1), "two": values(3), "dumb": [(0, None)] * 4}

    def rows(name: str) -> Iterator[dict[str, Any]]:
        yield from answered(name, sets[name])

    evaluation = PROTOCOL.run(rows, ["one", "two"], opened=lambda model: model.name)
    change = number(evaluation.results, "right", "two", against="one")
    (summary,) = evaluation.summary
    assert summary.header == ("measure", "one", "two", "change", "toward the aim", "n")
    assert [row[0] for row in summary.rows] == ["right, os", "at once", "gap"]
    assert [row[4] for row in summary.rows] == ["yes", "no", ""]
    _, before, after, text, _, n = summary.rows[0]
    assert text.startswith(f"+{100 * change['value']:#.3g} points [")
    most = max(number(evaluation.results, "right", name)["n"] for name in ("one", "two"))
    assert n == f"{change['n']} of {most} ({change['units']} questions)"
    assert evaluation.headline == f"one -> two: right, os {before} -> {after}, {text}, n {n}."
    assert summary.caption.startswith("Aim: many. Brackets: 95 % interval over questions, of one")
    (alone,) = PROTOCOL.run(rows, ["one"], opened=lambda model: model.name).summary
    assert alone.header == ("measure", "one", "n")
    assert alone.rows[0][1].startswith(f"{before} [")
    whole, by_kind = evaluation.tables()
    assert whole.header == ("measure", "one", "two", "two - one", "n")
    assert by_kind.header == ("measure", "kind", *whole.header[1:])
    assert any("timeout" in note for note in evaluation.notes)
    with pytest.raises(ValueError, match="dumb: 4 timeout"):
        PROTOCOL.run(rows, ["dumb"], opened=lambda model: model.name)
