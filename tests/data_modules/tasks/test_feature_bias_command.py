"""`python -m data_modules feature-bias` and `feature-bias-rows`: files in, files out, mistakes named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from data_modules.__main__ import main
from data_modules.sources import read_choices
from data_modules.tasks.feature_bias import CELLS, read_task


def write(path: Path, rows: list[dict]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture
def pairs(tmp_path: Path) -> str:
    return write(
        tmp_path / "pairs.jsonl",
        [
            {"premise": f"The {i} cat sat.", "hypothesis": f"The {i} {word}.", "gold": gold}
            for i in range(12)
            for word in ("cat", "dog")
            for gold in ("entailment" if i % 2 else "neutral", "contradiction")
        ],
    )


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    try:
        code = main(list(arguments))
    except SystemExit as stop:  # a flag that cannot be read
        code = int(str(stop.code))
    out = capsys.readouterr()
    return code, out.err or out.out


def test_a_task_from_labelled_pairs(tmp_path: Path, pairs: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["feature-bias", "--input", pairs, "--label", "gold", "--positive", "entailment"]
    command += ["--feature", "overlap", "--min-demos", "4", "--output", str(tmp_path / "mine.json")]
    code, said = told(capsys, *command, "--h1-means", "it follows", "it need not follow")
    assert code == 0
    # A pair with two labels counts once, with its first.
    assert "24 repeated" in said
    task = read_task(tmp_path / "mine.json")
    assert {cell: len(task.tests[cell]) for cell in CELLS} == {"1_1": 2, "0_0": 2, "1_0": 6, "0_1": 6}
    assert task.name == "mine"
    assert task.meanings["h1"].one == "it follows"


def test_labels_by_threshold_and_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"text": f"Comment {i}", "toxicity": i % 2 / 2, "female": float(i % 4 > 1), "male": float(i % 4 < 2)}
        for i in range(40)
    ]
    command = ["feature-bias", "--input", write(tmp_path / "in.jsonl", rows), "--feature", "identity"]
    command += ["--feature-args", "one=female", "zero=male", "--label", "toxicity", "--threshold", "0.5"]
    code, said = told(capsys, *command, "--min-demos", "4", "--output", str(tmp_path / "t.json"))
    assert (code, "demonstrations 4 in 1_1, 4 in 0_0; tests 6 in 1_1" in said) == (0, True)
    task = read_task(tmp_path / "t.json")
    assert {cell: len(task.tests[cell]) for cell in CELLS} == {"1_1": 6, "0_0": 6, "1_0": 10, "0_1": 10}
    assert task.made_from["feature"] == "identity"
    assert len(task.made_from["sha256"]) == 64


ROW = {"text": "A text", "label": 1}
MISTAKES = [
    ([ROW, {"text": "x", "label": 2}], [], "line 2: the label must be 0 or 1"),
    ([{"text": "x", "label": "high"}], ["--threshold", "1"], "line 1: the label must be a number"),
    ([ROW], ["--feature-args", "word=x"], "no option 'word'"),
    ([ROW], [], "no text in cell"),
]


@pytest.mark.parametrize(("rows", "flags", "named"), MISTAKES)
def test_mistakes_are_named(
    rows: list, flags: list[str], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["feature-bias", "--input", write(tmp_path / "in.jsonl", rows), "--feature", "uppercase"]
    code, said = told(capsys, *command, *flags, "--output", str(tmp_path / "out.json"))
    assert code == 2
    assert named in said
    assert not (tmp_path / "out.json").exists()


def test_labels_may_be_truth_values_and_errors_name_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"text": f"{word} {i}", "label": label}
        for i in range(4)
        for word in ("LOUD", "low")
        for label in (True, False)
    ]
    source = write(tmp_path / "in.jsonl", [{**row, "text": f"{row['text']} {row['label']}"} for row in rows])
    output = str(tmp_path / "t.json")
    command = ["feature-bias", "--input", source, "--min-demos", "1", "--output", output]
    assert told(capsys, *command, "--feature", "overlap")[1].startswith(
        f"error: row {source}, line 1: the feat"
    )
    assert told(capsys, *command, "--feature", "uppercase")[0] == 0
    assert {cell: len(found) for cell, found in read_task(output).tests.items()}["1_0"] == 4


def test_rows_to_train_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train, dev, test, rest = (str(tmp_path / name) for name in ("train", "dev", "test", "rest.json"))
    command = ["feature-bias-rows", "--task", "stories:overlap", "--output", train]
    command += ["--dev-output", dev, "--test-output", test]
    assert told(capsys, *command)[0] == 0
    rows = {path: read_choices(path) for path in (train, dev, test)}
    assert [len(found) for found in rows.values()] == [200, 200, 200]
    assert not {row.id for row in rows[train]} & {row.id for row in rows[dev]}
    # What the best checkpoint is chosen by knows no difference between the features.
    assert {row.benchmark.rpartition("/")[2] for row in rows[dev]} == {"1_1", "0_0"}
    assert {row.benchmark.rpartition("/")[2] for row in rows[test]} == {"1_0", "0_1"}
    assert told(capsys, *command)[0] == 2  # nothing is replaced unasked
    more = [*command, "--agreement-tests", "0.5", "--words", "no", "yes", "--overwrite"]
    assert "--rest" in told(capsys, *more)[1]
    assert told(capsys, *more, "--rest", rest)[0] == 0
    assert len(read_choices(train)) == 300
    assert len(read_task(rest).tests["1_1"]) == 50
    assert "two different words" in told(capsys, *command, "--words", "a", "a", "--overwrite")[1]
    assert "--size: at least 2" in told(capsys, *command, "--size", "1", "--overwrite")[1]
    assert "of its own" in told(capsys, *command, "--rest", dev, "--overwrite")[1]
