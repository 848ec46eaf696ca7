"""The long table, its views, and the folder that a report is."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from evaluation.figures import Bars, Lines
from evaluation.report import Evaluation, check_output, write_report
from evaluation.results import Results
from evaluation.views import Table, View, make_table, print_table

ROWS = [
    {"checkpoint": name, "variant": variant, "id": i, "em": float(i < hits), "failed": None}
    for name, variant, hits in (("ot", "os", 4), ("ot", "ts", 2), ("ibt", "os", 3), ("ibt", "ts", 0))
    for i in range(4)
]


@pytest.fixture
def results() -> Results:
    made = Results(("checkpoint", "variant"), unit="questions")
    made.add_means(ROWS, ("em", "failed"), unit="id")
    made.add("mu", 0.25, n=7, checkpoint="ot")
    return made


def test_means_by_cell(results: Results) -> None:
    frame = results.frame
    assert list(frame.columns) == ["checkpoint", "variant", "measure", "value", "low", "high", "n"]
    assert results.value("em", checkpoint="ot", variant="ts") == 0.5
    row = frame[(frame["checkpoint"] == "ot") & (frame["variant"] == "ts") & (frame["measure"] == "em")]
    assert row[["low", "high", "n"]].to_numpy().tolist() == [[0.0, 1.0, 4]]
    assert math.isnan(results.value("failed", checkpoint="ot", variant="os"))  # None does not count
    assert math.isnan(results.value("em", checkpoint="absent"))
    with pytest.raises(ValueError, match="variety"):
        results.add("em", 1, n=1, variety="os")


def test_views_are_lines_of_cells(results: Results) -> None:
    view = View("T", ("variant",), {"em": "EM"}, percent=True, interval=False)
    table = make_table(view, results.frame)
    assert table.header == ("variant", "ot", "ibt", "n")
    assert table.rows == (("os", "100.0", "75.0", 4), ("ts", "50.0", "0.0", 4))
    several = make_table(View("T", ("variant",), {"mu": "mu", "em": "EM"}), results.frame)
    assert (several.header, several.lead) == (("measure", "variant", "ot", "ibt", "n"), 2)
    assert several.rows[:2] == (
        ("mu", "all", "0.250", "", 7),
        ("EM", "os", "1 [1, 1]", "0.750 [0.250, 1]", 4),
    )
    beside = make_table(View("T", ("checkpoint", "variant"), {"em": "EM"}, across="measure"), results.frame)
    assert beside.header == ("checkpoint", "variant", "EM", "n")
    assert beside.rows[1] == ("ot", "ts", "0.500 [0, 1]", 4)
    one = View("T", ("variant",), {"mu": "mu"})
    assert make_table(one, results.frame).rows == (("mu", "0.250", 7),)
    absent = View("T", ("variant",), {"em": "EM"}, where={"variant": "ts_r"})
    assert make_table(absent, results.frame).rows == ()
    short = make_table(View("T", ("variant",), {"em": "EM"}, most=1), results.frame)
    assert len(short.rows) == 1
    assert "results.csv" in short.caption


@pytest.mark.parametrize("names", [["before", "after"], [f"epoch=3-step={i}00" for i in range(7)]])
def test_the_console_has_80_columns_and_loses_nothing(
    names: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bias of four classes, two data sets and many checkpoints: lines are classes, columns checkpoints."""
    monkeypatch.delenv("COLUMNS", raising=False)
    results = Results(("checkpoint", "data", "class"), unit="groups")
    places = [(d, c) for c in ("ethical", "adversarial", "irrelevant", "none") for d in ("heldout", "dev")]
    for i, name in enumerate(names):
        for data, kind in places:
            for measure in ("mu", "mean_abs_c"):
                cell = {"checkpoint": name, "data": data, "class": kind}
                results.add(measure, 0.5 + i / 100, n=1234, interval=(0.25, 0.75), **cell)
    view = View("Bias", ("class", "data"), {"mu": "mu", "mean_abs_c": "mean |C|"})
    print_table(make_table(view, results.frame))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    for i, name in enumerate(names):
        assert any(name in line for line in lines[:2]) or len(names) > 2
        assert sum(line.count(f"{0.5 + i / 100:.3f} [0.250, 0.750]") for line in lines) == 2 * len(places)
    assert all(line.endswith("  1234") for line in lines if "[" in line)


def test_the_folder_holds_everything_and_the_same_bytes_again(results: Results, tmp_path: Path) -> None:
    evaluation = Evaluation(
        title="T",
        results=results,
        views=[View("V", ("variant",), {"em": "EM"}), Table("Ready", ("a",), (("\ud800",),))],
        about={"protocol": "p"},
        headline="All is well.",
        figures={
            "bars.png": Bars(x="variant", hue="checkpoint", measures={"em": "EM"}),
            "lines.png": Lines(x="value", hue="checkpoint", measures={"em": "EM"}),
        },
        examples=ROWS,
    )
    write_report(evaluation, tmp_path / "r", command=["p", "--x"])
    report = json.loads((tmp_path / "r" / "report.json").read_text())
    assert report["headline"] == "All is well."
    assert report["about"]["command"] == ["p", "--x"]
    assert len(report["results"]) == len(results.frame)
    assert report["tables"][0]["header"] == ["variant", "ot", "ibt", "n"]
    assert report["about"]["files"] == sorted(path.name for path in (tmp_path / "r").iterdir())
    frame = pd.read_csv(tmp_path / "r" / "results.csv", keep_default_na=False)
    assert float(frame["value"][0]) == 1.0
    assert "All is well." in (tmp_path / "r" / "report.md").read_text().splitlines()[2]
    before = {path.name: path.read_bytes() for path in (tmp_path / "r").iterdir()}
    write_report(evaluation, tmp_path / "r", command=["p", "--x"], overwrite=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "r").iterdir()} == before


def test_only_reports_are_replaced(results: Results, tmp_path: Path) -> None:
    output = tmp_path / "r"
    output.mkdir()
    write_report(Evaluation("T", results, [], {}), output)
    check_output(output, overwrite=True)
    with pytest.raises(ValueError, match="--overwrite"):
        check_output(output, overwrite=False)
    (output / "mine.txt").write_text("kept")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.tex").touch()
    for path in (output, output / "mine.txt", tmp_path / "notes"):
        with pytest.raises(ValueError, match=path.name):
            check_output(path, overwrite=True)


def test_a_failure_leaves_the_older_report_or_nothing(results: Results, tmp_path: Path) -> None:
    def examples() -> Iterator[dict[str, int]]:
        yield {"a": 1}
        raise KeyboardInterrupt

    output = tmp_path / "r"
    for before in ([], ["r"]):
        with pytest.raises(KeyboardInterrupt):
            write_report(Evaluation("B", results, [], {}, examples=examples()), output, overwrite=True)
        assert [path.name for path in tmp_path.iterdir()] == before
        write_report(Evaluation("A", results, [], {}), output, overwrite=True)
    assert (output / "report.md").read_text().startswith("# A")
