"""Tasks: the released schema, the four cells of a labelled set, rows to train on, and the two commands."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.__main__ import main
from data_modules.choices.benchmarks import write_choices
from data_modules.sources import read_choices
from data_modules.tasks.feature_bias import (
    Sizes,
    agreeing_cells,
    build_task,
    choice_rows,
    differing_cells,
    read_task,
    training_examples,
    write_task,
)
from data_modules.tasks.own_tasks import OWN_TASKS, open_task, own_task
from data_modules.tasks.predicates import LabelledText, feature
from storage.errors import DataError

CELLS = (*agreeing_cells(2), *differing_cells(2))


def released(n: int = 2) -> dict[str, Any]:
    """A document in the released schema."""

    def examples(cell: str, first: int) -> list[dict[str, str]]:
        return [
            {"id": str(first + i), "question": f"Text {cell} {first + i}", "answer": cell[0], "split": cell}
            for i in range(n)
        ]

    document: dict[str, Any] = {"dataset": "mine"}
    document |= {f"demos_{cell}": examples(cell, n) for cell in CELLS[:2]}
    return document | {f"testset_{cell}": examples(cell, 0) for cell in CELLS}


def saved(tmp_path: Path, document: Any) -> Path:
    path = tmp_path / "task.json"
    path.write_text(json.dumps(document))
    return path


def rows(texts: list[tuple[str, int]]) -> list[LabelledText]:
    return [LabelledText(str(i), text, "", label) for i, (text, label) in enumerate(texts)]


def test_the_released_schema_is_read(tmp_path: Path) -> None:
    task = read_task(saved(tmp_path, released()))
    assert task.name == "mine"
    assert [x.name for x in task.demos["0_0"]] == ["0_0/2", "0_0/3"]
    assert {cell: len(task.tests[cell]) for cell in CELLS} == dict.fromkeys(CELLS, 2)


def put(key: str, index: int, field: str, value: Any) -> dict[str, Any]:
    document = released()
    document[key][index][field] = value
    return document


BROKEN = [
    (put("testset_1_0", 0, "answer", "0"), r"testset_1_0\[0\].*must be 1"),
    (put("testset_0_1", 1, "split", "1_0"), r"testset_0_1\[1\].*1_0"),
    (put("testset_0_1", 1, "question", " "), r"testset_0_1\[1\].*empty"),
    (put("testset_0_1", 1, "id", "0"), "'0' is there twice"),
    ({**released(), "testset_1_0": []}, "testset_1_0 is empty"),
    ({**released(), "features": {"h3": {}}}, "features.*h1.*h2"),
]


@pytest.mark.parametrize(("document", "told"), BROKEN)
def test_what_does_not_fit_is_named(tmp_path: Path, document: Any, told: str) -> None:
    with pytest.raises(DataError, match=told) as error:
        read_task(saved(tmp_path, document))
    assert "task.json" in str(error.value)


@pytest.mark.parametrize("name", OWN_TASKS)
def test_embedded_tasks_need_no_file(tmp_path: Path, name: str) -> None:
    task = open_task(f"stories:{name}?seed=3")
    assert task == own_task(name, 3)
    assert task.tests != own_task(name).tests
    predicate = feature(name, OWN_TASKS[name])
    for x in (*task.agreeing(), *task.tests["1_0"], *task.tests["0_1"]):
        first, _, second = x.question.partition("\n")
        assert predicate.value(LabelledText("", first, second, 0)) == int(x.split[2])
    write_task(tmp_path / "task.json", task)
    assert read_task(tmp_path / "task.json") == task


@given(
    texts=st.lists(st.tuples(st.sampled_from("abcdefgh"), st.booleans(), st.integers(0, 1)), min_size=1),
    seed=st.integers(0, 3),
)
def test_cells_hold_every_text_once(texts: list[tuple[str, bool, int]], seed: int) -> None:
    given_rows = rows([(f"{word} {'LOUD' if loud else 'low'} {label}", label) for word, loud, label in texts])
    distinct = {row.text for row in given_rows}
    cells = Counter(f"{text[-1]}_{int('LOUD' in text)}" for text in distinct)
    if set(cells) != set(CELLS):
        with pytest.raises(DataError, match="no text in cell"):
            build_task("t", given_rows, feature("uppercase"))
        return
    task = build_task("t", given_rows, feature("uppercase"), Sizes(seed, min_demos=1))
    held = [x for part in (task.demos, task.tests) for examples in part.values() for x in examples]
    assert sorted(x.question for x in held) == sorted(distinct)
    assert all(x.answer == x.question[-1] == x.split[0] for x in held)
    assert task.made_from["repeated"] == len(given_rows) - len(distinct)
    assert task == build_task("t", given_rows[::-1], feature("uppercase"), Sizes(seed, min_demos=1))


def test_caps_and_what_stays_a_demonstration() -> None:
    texts = [(f"{i} {word} {label}", label) for i in range(20) for word in ("UP", "low") for label in (0, 1)]
    task = build_task("t", rows(texts), feature("uppercase"), Sizes(cap=15, max_demos=6, min_demos=8))
    assert {cell: len(x) for cell, x in task.tests.items()} == {"1_1": 12, "0_0": 12, "1_0": 15, "0_1": 15}
    assert {cell: len(x) for cell, x in task.demos.items()} == {"1_1": 6, "0_0": 6}
    assert [x.id for x in task.demos["1_1"]] == [str(i) for i in range(12, 18)]  # behind the tests


def test_training_rows_are_balanced_and_leave_the_task(tmp_path: Path) -> None:
    task = own_task("uppercase")
    chosen, rest = training_examples(task, agreement_tests=0.5, seed=1)
    assert Counter(x.split for x in chosen) == {"1_1": 150, "0_0": 150}
    held = {x.name for cell in CELLS for x in rest.tests[cell]}
    assert not held & {x.name for x in chosen}
    assert {cell: len(rest.tests[cell]) for cell in CELLS} == {"1_1": 50, "0_0": 50, "1_0": 100, "0_1": 100}
    assert len(training_examples(task, size=10)[0]) == 10
    written = choice_rows(task, chosen, ("no", "yes"))
    write_choices(tmp_path / "rows.jsonl", written)
    read = read_choices(tmp_path / "rows.jsonl")
    assert read == written
    assert all(row.choices == ("no", "yes") and str(row.label) == row.benchmark[-3] for row in read)


def test_the_released_files(shared: Path) -> None:
    sizes = {}
    for path in sorted((shared / "data/ambigprompt").glob("*.json")):
        task = read_task(path)
        sizes[task.name] = [len(task.demos[c]) for c in CELLS[:2]] + [len(task.tests[c]) for c in CELLS]
    assert sizes["boolq_answer_overlap"] == [247, 12, 300, 300, 300, 275]
    assert sizes["boolq_answer_structure"] == [10, 300, 190, 300, 300, 222]


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
    ([{"text": "A text", "label": True}, {"text": "LOUD", "label": False}], [], "1 in 1_0"),
    ([ROW], ["--feature", "overlap"], "line 1: the feature overlap needs pairs"),
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
    assert "different words" in told(capsys, *command, "--words", "a", "a", "--overwrite")[1]
    assert "--size: at least 2" in told(capsys, *command, "--size", "1", "--overwrite")[1]
    assert "of its own" in told(capsys, *command, "--rest", dev, "--overwrite")[1]
