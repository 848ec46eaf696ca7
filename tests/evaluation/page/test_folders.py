"""What pages of several results are made from: which folders, rows and curves."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from evaluation.page.folders import FoundRun, find_results, read_curves, read_rows, short_names
from evaluation.page.page import curve_figures, curve_keys
from tests.evaluation.page.html_pages import furnish


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """Two runs and a report."""
    return furnish(tmp_path)


def test_rows_are_spread_over_cells(room: Path) -> None:
    rows = read_rows(room / "report/examples.jsonl", ("checkpoint", "variant", "layer"), 10)
    assert [row["id"] for row in rows.rows] == [
        f"{name}-{variant}-{i}" for name in ("before", "after") for variant in ("os", "ts_r") for i in (0, 1)
    ]
    assert (rows.total, rows.each, rows.by) == (36, 2, ("checkpoint", "variant"))
    assert read_rows(room / "none.jsonl", (), 10).total == 0


def test_names(room: Path) -> None:
    arguments = [f"mine={room / 'report'}", f"two={room / 'runs'}", str(room)]
    assert [found.label for found in find_results(arguments)] == ["mine", "two/ot/0", "two/ot/1"]  # each once
    assert short_names([Path("/a/b/c"), Path("/a/d/c"), Path("/x")]) == ["b/c", "d/c", "x"]


def test_curves_leave_out_what_is_no_point(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("epoch,step,a,b\n0,1,0.5,\n0,2,nan,3\n,,1,1\n")
    curves = read_curves(path)
    assert list(curves) == ["step", "a", "b"]
    assert curves["a"].dropna().tolist() == [0.5]
    assert curves["b"].dropna().tolist() == [3.0]
    for text in ("epoch,a\n0,1\n", "step,a\n1,2\n2,x\n"):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"metrics\.csv"):
            read_curves(path)


def test_curves_of_runs_with_odd_and_equal_names(recwarn: pytest.WarningsRecorder) -> None:
    def a_run(label: str, **columns: list[float]) -> FoundRun:
        curves = pd.DataFrame({"step": [1.0, 2.0], **columns})
        return FoundRun(label, Path(), "", {}, {}, {}, curves)

    runs = [
        a_run("$\\frac{$ $x", **{"a/$b$_{": [0.5, 0.25]}),
        a_run("_hidden", **{"a/$b$_{": [0.5, 0.25], "c/one": [1.0, float("nan")], "val/n": [5, 5]}),
        a_run("_hidden", **{"a/$b$_{": [0.25, 0.125]}),
    ]
    assert curve_keys(runs) == ["a/$b$_{"]
    ((keys, picture),) = curve_figures(runs)
    assert keys == "a/$b$_{"
    assert picture.startswith(b"<?xml")
    assert [picture] == [drawn for _, drawn in curve_figures(runs)]  # to the byte
    assert not recwarn
