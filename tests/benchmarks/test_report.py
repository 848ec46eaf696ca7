"""Results are written whole, and a run of some benchmarks keeps the others'."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.report import entries_of, markdown, read_entries, record
from benchmarks.result import Result
from storage.errors import DataError

ABOUT = {"date": "2026-01-02", "machine": {"cpu": "abacus", "cores": 2}}


def pair(benchmark: str, ours: float = 6.0, theirs: float = 2.0) -> list[Result]:
    return [
        Result(benchmark=benchmark, system=system, unit="samples/s", values=(x, 2 * x), command="run me")
        for system, x in (("interventune", ours), ("slow | one", theirs))
    ]


def test_ratio_and_spread_compare_with_the_first_system() -> None:
    first = Result(benchmark="b", system="ours", unit="s", values=(1.0, 2.0, 2.0), higher_is_better=False)
    other = Result(benchmark="b", system="other", unit="s", values=(4.0, 6.0, 2.0), higher_is_better=False)
    ours, theirs = entries_of("m", [first, other], ABOUT)["b"]["systems"]
    assert "ours_times_better" not in ours
    assert theirs["ours_times_better"] == 3
    assert theirs["spread"] == [1, 4]
    assert theirs["values"] == [4, 6, 2]


def test_a_run_replaces_its_own_benchmarks_and_keeps_the_others(tmp_path: Path) -> None:
    record(tmp_path, "training", entries_of("training", [*pair("training/a"), *pair("training/b")], ABOUT))
    record(tmp_path, "gpu", entries_of("gpu", pair("gpu/a"), ABOUT | {"date": "2026-03-04"}))
    record(tmp_path, "training", entries_of("training", pair("training/b", ours=8.0), ABOUT))
    entries = read_entries(tmp_path)
    assert set(entries) == {"gpu/a", "training/b"}
    assert entries["training/b"]["systems"][0]["values"] == [8, 16]
    assert entries["gpu/a"]["date"] == "2026-03-04"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results.json", "results.md"]


def test_the_page_shows_ratio_spread_command_date_and_machine(tmp_path: Path) -> None:
    page = markdown(record(tmp_path, "training", entries_of("training", pair("training/a"), ABOUT)))
    assert page == (tmp_path / "results.md").read_text()
    row = next(line for line in page.splitlines() if line.startswith("| training/a"))
    assert "**3.00**" in row
    assert "3.00 to 3.00" in row
    assert "`run me`" in row
    assert "2026-01-02" in page
    assert "abacus" in page
    table = [line for line in page.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in table} == {9}


def test_systems_that_did_not_take_turns_are_refused() -> None:
    ours, theirs = pair("b")
    short = Result(benchmark="b", system="short", unit="samples/s", values=(1.0,))
    with pytest.raises(ValueError, match="short has 1 values"):
        entries_of("m", [ours, theirs, short], ABOUT)


def test_a_file_that_is_something_else_is_kept(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text("[]")
    with pytest.raises(DataError, match=r"results\.json"):
        record(tmp_path, "m", {})
    assert (tmp_path / "results.json").read_text() == "[]"


def test_the_command_writes_valid_files_in_quick_mode(tmp_path: Path) -> None:
    flags = ["--quick", "--repeats=2", f"--output={tmp_path}", "--date=2026-05-06"]
    assert main(["training", *flags]) == 0
    (entry,) = json.loads((tmp_path / "results.json").read_text())["benchmarks"].values()
    assert entry["date"] == "2026-05-06"
    assert entry["quick"] is True
    assert entry["machine"]["cores"] >= 1
    ours, *others = entry["systems"]
    assert ours["system"] == "interventune"
    assert len(others) == 3
    for system in entry["systems"]:
        assert len(system["values"]) == 2
        assert system["command"] == "python -m benchmarks training"
        assert 0 < system["notes"]["share of the measured matmul peak"] < 1.5
    assert "| training/tiny" in (tmp_path / "results.md").read_text()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--quick"], "--output"),
        (["training", "--repeats=0"], "--repeats"),
        (["training", "--quick", "--output=/dev/null", "--data=absent.json"], "absent.json"),
    ],
)
def test_mistakes_are_one_line(flags: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(flags) == 2
    assert said in capsys.readouterr().err


def test_an_unknown_benchmark_is_refused_with_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["trainings"])
    said = capsys.readouterr().err
    assert all(name in said for name in BENCHMARKS)
