"""`interventune data`: mistakes, and commands that no golden runs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from interventune.data_modules.__main__ import main
from tests.data_modules.fixtures.coqa_rows import told
from tests.data_modules.fixtures.tiny_lists import write_lists

Output = pytest.CaptureFixture[str]


@pytest.fixture
def advised(tmp_path: Path) -> list[str]:
    """`lei` from the tiny lists."""
    flags = "--subjects {subjects} --templates {templates} --attributes {attributes}"
    flags += " --interventions {interventions}"
    return ["lei", *flags.format(**write_lists(tmp_path)).split()]


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def test_lei_refuses_empty_sets(advised: list[str], tmp_path: Path, capsys: Output) -> None:
    assert run(*advised, "--output", tmp_path / "all") == 0
    assert run(*advised, "--disjoint-from", tmp_path / "all", "--output", tmp_path / "out") == 2
    assert "no group is left" in capsys.readouterr().err
    Path(advised[-1]).write_text('{"ethical": {"rude": ["Be fair."]}}')
    assert run(*advised, "--output", tmp_path / "out") == 2
    assert "interventions.json: no advice for the category 'wealth'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["lei", "perturb"])
def test_no_heavy_library_is_loaded(command: str, advised: list[str], tmp_path: Path) -> None:
    perturb = ["perturb", "--input", "stories:conversation_dev", "--variant", "ts"]
    arguments = [*(advised if command == "lei" else perturb), "--output", str(tmp_path / "out")]
    code = (
        "import sys; from interventune.data_modules.__main__ import main; assert "
        f"main({arguments!r}) == 0; assert not {{'torch', 'datasets', 'transformers'}} & "
        "{*sys.modules}"
    )
    root = Path(__file__).resolve().parents[2]
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True)


STORY = "Ida sat by the well. Her cat Moro wore a blue bell. They left at ten."
QUESTIONS = (
    ("Who sat?", "Ida", "Ida sat by the well"),
    ("What did the cat wear?", "a blue bell", "Moro wore a blue bell."),
    ("Did they leave?", "Yes.", "They left at ten."),
    ("When?", "ten", "at ten"),
    ("Who fell?", "unknown", ""),
)


@pytest.fixture
def coqa(tmp_path: Path) -> Path:
    """A file in CoQA's layout."""
    (tmp_path / "coqa.json").write_text(json.dumps({"data": [told(STORY, QUESTIONS)]}))
    return tmp_path / "coqa.json"


def perturb(source: Path | str, variant: str, output: Path, *more: object) -> int:
    return run("perturb", "--input", source, "--variant", variant, "--output", output, *more)


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_ts_r_of_coqa_and_its_summary(coqa: Path, tmp_path: Path, capsys: Output) -> None:
    output = tmp_path / "out.jsonl"
    assert perturb(coqa, "ts_r", output) == 0
    assert "3 questions in ts_r; 2 rejected (1 rationale begins in" in capsys.readouterr().out
    appended = {row["id"]: row["appended"] for row in rows(output)}
    assert appended == {"s 2": "a blue bell", "s 3": "", "s 4": "ten"}
    summary = json.loads((tmp_path / "out.summary.json").read_text())
    assert summary["kept"] == 3
    assert summary["rejected"] == {"rationale begins in the first sentence": 1, "no rationale": 1}
    assert perturb(coqa, "ts", output) == 2
    assert "already exists" in capsys.readouterr().err
    assert perturb(coqa, "ts", output, "--overwrite") == 0
    assert len(rows(output)) == 5


def test_sentences_of_a_file_take_the_place_of_the_answers(coqa: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"s 2": "A note said a blue bell.", "s 4": "A note."}))
    assert perturb(coqa, "ts_r_aug", tmp_path / "out", "--sentences", file) == 0
    assert [row["appended"] for row in rows(tmp_path / "out")] == ["A note said a blue bell.", ""]
    assert "lacks the answer" in (tmp_path / "out.summary.json").read_text()
    assert perturb(coqa, "ts_r", tmp_path / "ts_r", "--sentences", file) == 2


def test_mistakes_write_and_replace_nothing(coqa: Path, tmp_path: Path, capsys: Output) -> None:
    one, checkpoint = tmp_path / "one.json", tmp_path / "best.ckpt"
    one.write_text(json.dumps({"data": [told(STORY, QUESTIONS[:1])]}))
    assert perturb(one, "ts_r", tmp_path / "out") == 2
    assert "no question is left in variant ts_r: kept 0 of 1" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"coqa.json", "one.json"}
    checkpoint.write_bytes(b"PK weights")
    assert perturb(coqa, "ts", checkpoint, "--overwrite") == 2
    assert checkpoint.read_bytes() == b"PK weights"
    assert perturb(coqa, "os", tmp_path / "os.jsonl") == 0
    assert perturb(tmp_path / "os.jsonl", "ts", tmp_path / "os.jsonl", "--overwrite") == 2


def test_statistics_count_types_of_answers(coqa: Path, tmp_path: Path, capsys: Output) -> None:
    """In the original stories, of a file that has variants too; and the unknown in each."""
    for variant in ("os", "ts_r"):
        assert perturb(coqa, variant, tmp_path / variant) == 0
    both, output = tmp_path / "both", tmp_path / "counts.csv"
    both.write_text((tmp_path / "os").read_text() + (tmp_path / "ts_r").read_text())
    capsys.readouterr()
    assert run("statistics", "--data", f"dev={both}", "--output", output) == 0
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| dev | os | 1 | 5 | 20.0 | 0.0 | 20.0 | 40.0 | 20.0 | 0.0 | 20.0 | 0 |",
        "| dev | ts | 1 | 5 | 20.0 | 0.0 | 20.0 | 40.0 | 20.0 | 0.0 | 20.0 | 0 |",
        "| dev | ts_r | 1 | 3 | 33.3 | 0.0 | 0.0 | 33.3 | 33.3 | 0.0 | 100.0 | 2 (1 rationale "
        "begins in the first sentence, 1 no rationale) |",
    ]
    table = pd.read_csv(output)
    table.index = table["variant"] + " " + table["measure"]
    assert set(table["n"]) == {5}
    cells = {"os questions": 5, "os unknown": 0.2, "os span": 0.4, "os in_story": 0.6}
    cells |= {"ts_r questions": 3, "ts_r yes": 1 / 3, "ts_r unknown_now": 1, "ts stories": 1}
    assert table["value"][[*cells]].to_dict() == pytest.approx(cells)
    assert run("statistics", "--data", tmp_path / "ts_r", "--variants", "os") == 2
    assert "holds only variants" in capsys.readouterr().err
