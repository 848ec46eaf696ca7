"""The report folder appears whole or not at all, and nothing of the user's is lost."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evaluation.__main__ import main
from evaluation.old_report import Report, check_output, write_report
from evaluation.old_tables import Table, format_cell, markdown_table, print_table
from tests.evaluation.protocols.bias.predictions import EX1

ROOT = Path(__file__).resolve().parents[2]


def a_report(**changes: Any) -> Report:
    table = Table("T", ("class", "mu"), (("a|b", 0.25), ("none", math.nan)))
    content: dict[str, Any] = {"title": "A", "metrics": {"a/mu": 0.25, "b/mu": math.nan}, "tables": (table,)}
    return Report(
        **{**content, "about": {"input": Path("x")}, "examples": [{"id": 1, "c": math.inf}], **changes}
    )


def test_what_is_written(tmp_path: Path) -> None:
    output = tmp_path / "deep" / "report"
    write_report(a_report(figures={"f.txt": lambda path: path.write_text("drawn")}), output)
    report = json.loads((output / "report.json").read_text())
    assert report["a/mu"] == 0.25
    assert report["b/mu"] is None
    assert report["about"]["input"] == "x"
    assert sorted(report["about"]["files"]) == sorted(entry.name for entry in output.iterdir())
    assert json.loads((output / "examples.jsonl").read_text()) == {"id": 1, "c": None}
    assert "![f.txt](f.txt)" in (output / "report.md").read_text()
    assert [entry.name for entry in output.parent.iterdir()] == ["report"]


def test_another_run_is_kept_unless_overwritten(tmp_path: Path) -> None:
    output = tmp_path / "report"
    write_report(a_report(), output)
    with pytest.raises(ValueError, match=r"holds another run .*--overwrite"):
        write_report(a_report(title="B"), output)
    write_report(a_report(title="B"), output, overwrite=True)
    assert (output / "report.md").read_text().startswith("# B")
    (output / "thesis.tex").write_text("years of work")
    with pytest.raises(ValueError, match=r"thesis\.tex"):
        write_report(a_report(), output, overwrite=True)
    assert (output / "thesis.tex").exists()


def test_overwrite_never_takes_a_folder_that_is_no_report(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="other files"):
        check_output(tmp_path, overwrite=True)
    with pytest.raises(ValueError, match="is a file"):
        check_output(tmp_path / "notes.txt", overwrite=True)
    (tmp_path / "empty").mkdir()
    write_report(a_report(), tmp_path / "empty")


def test_a_failure_leaves_no_trace_and_the_older_report(tmp_path: Path) -> None:
    def breaks() -> Iterator[dict[str, int]]:
        yield {"id": 1}
        raise ValueError("no")

    output = tmp_path / "report"
    with pytest.raises(ValueError, match="no"):
        write_report(a_report(examples=breaks()), output)
    assert not list(tmp_path.iterdir())
    write_report(a_report(), output)
    with pytest.raises(ValueError, match="no"):
        write_report(a_report(title="B", examples=breaks()), output, overwrite=True)
    assert [entry.name for entry in tmp_path.iterdir()] == ["report"]
    assert (output / "report.md").read_text().startswith("# A")


def test_tables(capsys: pytest.CaptureFixture[str]) -> None:
    table = a_report().tables[0]
    assert markdown_table(table).splitlines() == [
        "| class | mu |",
        "| --- | ---: |",
        "| a\\|b | 0.2500 |",
        "| none | – |",
    ]
    print_table(table)
    assert "0.2500" in capsys.readouterr().out
    assert [format_cell(cell) for cell in (3, "x", 0.5)] == ["3", "x", "0.5000"]


def test_help_needs_no_torch() -> None:
    code = """
import sys
from evaluation.__main__ import main
for argv in (["--help"], ["bias", "--help"]):
    try:
        main(argv)
    except SystemExit as stop:
        assert stop.code == 0
assert not {"torch", "transformers", "numpy", "rich", "matplotlib"} & set(sys.modules), "slow imports"
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--predictions" in done.stdout


def test_the_command_from_a_shell(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(json.dumps(EX1))
    command = [sys.executable, "-m", "evaluation", "bias", "--output", str(tmp_path / "r"), "--predictions"]
    done = subprocess.run(
        [*command, str(tmp_path / "p.json")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "0.0850" in done.stdout
    again = subprocess.run([*command, "missing.json"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert again.returncode == 2
    assert again.stderr.startswith("error: --output")
    assert "Traceback" not in again.stderr


def test_missing_file_and_traceback_flag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["bias", "--predictions", str(tmp_path / "missing.json"), "--output", str(tmp_path / "r")]
    assert main(argv) == 2
    assert "missing.json" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"missing\.json"):
        main([*argv, "--traceback"])
