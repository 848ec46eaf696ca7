"""What pages of several results are made from: which folders, columns, rows and curves."""

from __future__ import annotations

import doctest
from pathlib import Path
from types import ModuleType

import pytest

from evaluation import figures as figure_style
from evaluation.old_report import write_report
from evaluation.page import example_rows, found_results, html_report, html_tables, side_by_side
from evaluation.page.curve_figures import curve_figures, curve_keys
from evaluation.page.example_rows import read_rows
from evaluation.page.found_results import find_results, read_curves, short_names
from evaluation.page.html_tables import is_number
from evaluation.page.side_by_side import columns, comparisons, flat
from tests.evaluation.page.html_pages import (
    METRICS,
    a_report,
    furnish,
)


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """Two runs and a report."""
    return furnish(tmp_path)


def test_rows_are_spread_over_what_numbers_name(room: Path) -> None:
    rows = read_rows(room / "report/examples.jsonl", METRICS, 10)
    assert [row["id"] for row in rows.rows] == [
        f"{name}-{variant}-{i}" for name in ("before", "after") for variant in ("os", "ts_r") for i in (0, 1)
    ]
    assert (rows.total, rows.each, list(rows.groups or ())) == (36, 2, ["checkpoint", "variant"])
    assert rows.columns == ("checkpoint", "variant", "id", "em", "said")
    assert read_rows(room / "none.jsonl", METRICS, 10).total == 0


def test_columns_are_checkpoints_and_folders(room: Path) -> None:
    write_report(a_report(metrics={**METRICS, "after/os/f1": 1.0}), room / "second")
    results = find_results([str(room)])
    assert [column.label for column in columns(results[0])] == ["report: before", "report: after", "report"]
    training, faithful = sorted(comparisons(results), key=lambda found: len(found.columns))
    assert (training.title, training.keys) == ("training", ("val/qa/f1", "step"))
    assert [column.label for column in training.columns] == ["ot/0", "ot/1"]
    assert faithful.keys == ("os/em", "ts_r/em", "ts_r/p_value", "n")
    assert faithful.others == 1
    assert len(faithful.columns) == 6
    # One folder's checkpoints are side by side in its own table; a second table would say it twice.
    assert not list(comparisons(find_results([str(room / "report")])))


def test_names(room: Path) -> None:
    labels = [
        found.label for found in find_results([f"mine={room / 'report'}", f"two={room / 'runs'}", str(room)])
    ]
    assert labels == ["mine", "two/ot/0", "two/ot/1"]  # each folder once
    assert short_names([Path("/a/b/c"), Path("/a/d/c"), Path("/x")]) == ["b/c", "d/c", "x"]
    assert list(flat({"a": {"b": []}, "c": {}})) == [("a.b", "–"), ("c", "–")]
    assert [is_number(text) for text in ("–", "3 of 4", "1,234", "+3.1 %", "56be4db0")] == [
        False, False, True, True, False,
    ]  # fmt: skip


def test_curves_leave_out_what_is_no_point(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("epoch,step,a,b\n0,1,0.5,\n0,2,nan,3\n0,3\n,,1,1\n")
    assert read_curves(path) == {"a": [(1.0, 0.5)], "b": [(2.0, 3.0)]}
    path.write_text("epoch,a\n0,1\n")
    with pytest.raises(ValueError, match=r"metrics\.csv: has no column 'step'"):
        read_curves(path)
    path.write_text("step,a\n1,2\n2,x\n")
    with pytest.raises(ValueError, match=r"metrics\.csv, line 3"):
        read_curves(path)


def test_curves_of_runs_with_odd_names(recwarn: pytest.WarningsRecorder) -> None:
    points = [(1.0, 0.5), (2.0, 0.25)]
    curves = {"$\\frac{$ $x": {"a/$b$_{": points}, "_hidden": {"a/$b$_{": points, "c/one": points[:1]}}
    assert curve_keys(curves) == ["a/$b$_{"]
    assert curve_keys({"run": {"val/n": [(0, 5), (1, 5)], "val/em": [(0, 0.1), (1, 0.2)]}}) == ["val/em"]
    ((keys, picture),) = curve_figures(curves)
    assert keys == "a/$b$_{"
    assert picture.startswith(b"<?xml")
    assert b"\\frac" in picture.replace(b"<!-- ", b"")
    assert b"_hidden" in picture
    assert [picture] == [drawn for _, drawn in curve_figures(curves)]  # to the byte
    assert not recwarn


@pytest.mark.parametrize(
    "module", [example_rows, figure_style, found_results, html_report, html_tables, side_by_side]
)
def test_the_examples_of_docstrings(module: ModuleType) -> None:
    assert doctest.testmod(module).failed == 0
