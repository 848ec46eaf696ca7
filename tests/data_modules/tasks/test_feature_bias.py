"""Tasks: the released schema, the four cells of a labelled set, rows to train on, and the two commands."""

from __future__ import annotations

import json
import re
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
    CELLS,
    Sizes,
    build_task,
    choice_rows,
    read_task,
    training_examples,
    write_task,
)
from data_modules.tasks.features import Recipe, recipes
from data_modules.tasks.labelled_texts import LabelledText
from data_modules.tasks.own_tasks import open_task
from storage.errors import DataError

UPPERCASE = Recipe(feature="uppercase")
OWN = [name for name in recipes() if name.startswith("stories:")]


def released() -> dict[str, Any]:
    """A document in the released schema."""

    def examples(cell: str, first: int) -> list[dict[str, str]]:
        return [
            {"id": str(i), "question": f"Text {cell} {i}", "answer": cell[0], "split": cell}
            for i in range(first, first + 2)
        ]

    document: dict[str, Any] = {"dataset": "mine"}
    document |= {f"demos_{cell}": examples(cell, 2) for cell in CELLS[:2]}
    return document | {f"testset_{cell}": examples(cell, 0) for cell in CELLS}


def put(key: str, index: int, field: str, value: Any) -> dict[str, Any]:
    document = released()
    document[key][index][field] = value
    return document


BROKEN = [
    (put("testset_1_0", 0, "answer", "0"), r"testset_1_0\[0\].*must be 1"),
    (put("testset_0_1", 1, "split", "1_0"), r"testset_0_1\[1\].*0_1"),
    (put("testset_0_1", 1, "question", " "), r"testset_0_1\[1\]"),
    ({**released(), "testset_1_0": []}, "testset_1_0.* at least 1 item"),
]


def test_read_task_reads_the_released_schema(tmp_path: Path) -> None:
    (tmp_path / "task.json").write_text(json.dumps(released()))
    task = read_task(tmp_path / "task.json")
    assert task.name == "mine"
    assert [x.name for x in task.demos["0_0"]] == ["0_0/2", "0_0/3"]
    assert {cell: len(task.tests[cell]) for cell in CELLS} == dict.fromkeys(CELLS, 2)


@pytest.mark.parametrize(("document", "named"), BROKEN)
def test_read_task_names_what_does_not_fit(tmp_path: Path, document: Any, named: str) -> None:
    (tmp_path / "task.json").write_text(json.dumps(document))
    with pytest.raises(DataError, match=f"task.json.*{named}"):
        read_task(tmp_path / "task.json")


@pytest.mark.parametrize("name", OWN)
def test_open_task_makes_the_embedded_tasks(tmp_path: Path, name: str) -> None:
    task = open_task(f"{name}?seed=3")
    assert task == open_task(f"{name}?seed=3") != open_task(name)
    predicate = recipes()[name].predicate()
    for x in (x for part in (task.demos, task.tests) for examples in part.values() for x in examples):
        first, _, second = x.question.partition("\n")
        assert predicate(LabelledText("", first, second, 0)) == int(x.split[2])
    write_task(tmp_path / "task.json", task)
    assert read_task(tmp_path / "task.json") == task


@given(
    texts=st.lists(st.tuples(st.sampled_from("abcdefgh"), st.booleans(), st.integers(0, 1)), min_size=1),
    seed=st.integers(0, 3),
)
def test_build_task_puts_every_text_into_one_cell(texts: list[tuple[str, bool, int]], seed: int) -> None:
    rows = [
        LabelledText(str(i), f"{word} {'LOUD' if loud else 'low'} {label}", "", label)
        for i, (word, loud, label) in enumerate(texts)
    ]
    distinct, sizes = {row.text for row in rows}, Sizes(seed, min_demos=1)
    if {f"{text[-1]}_{int('LOUD' in text)}" for text in distinct} != set(CELLS):
        with pytest.raises(DataError, match="no text in cell"):
            build_task("t", rows, UPPERCASE)
        return
    task = build_task("t", rows, UPPERCASE, sizes)
    held = [x for part in (task.demos, task.tests) for examples in part.values() for x in examples]
    assert sorted(x.question for x in held) == sorted(distinct)
    assert all(x.answer == x.question[-1] == x.split[0] for x in held)
    assert task.made_from["repeated"] == len(rows) - len(distinct)
    assert task == build_task("t", rows[::-1], UPPERCASE, sizes)


def test_build_task_keeps_demonstrations_before_tests() -> None:
    texts = [f"{i} {word} {label}" for i in range(20) for word in ("UP", "low") for label in (0, 1)]
    rows = [LabelledText("", text, "", int(text[-1])) for text in texts]
    task = build_task("t", rows, UPPERCASE, Sizes(cap=15, max_demos=6, min_demos=8))
    assert [len(task.tests[cell]) for cell in CELLS] == [12, 12, 15, 15]
    assert [x.id for x in task.demos["1_1"]] == [str(i) for i in range(12, 18)]  # behind the tests


def test_training_examples_are_balanced(tmp_path: Path) -> None:
    task = open_task("stories:uppercase")
    chosen = training_examples(task, seed=1)
    assert Counter(x.split for x in chosen) == {"1_1": 100, "0_0": 100}
    written = choice_rows(task, chosen)
    write_choices(tmp_path / "rows.jsonl", written)
    assert read_choices(tmp_path / "rows.jsonl") == written
    assert all(str(row.label) == row.benchmark[-3] for row in written)


def test_read_task_reads_the_released_files(shared: Path) -> None:
    sizes = {}
    for path in sorted((shared / "data/ambigprompt").glob("*.json")):
        task = read_task(path)
        sizes[task.name] = [len(task.demos[c]) for c in CELLS[:2]] + [len(task.tests[c]) for c in CELLS]
    assert sizes["boolq_answer_overlap"] == [247, 12, 300, 300, 300, 275]
    assert sizes["boolq_answer_structure"] == [10, 300, 190, 300, 300, 222]


def run(tmp_path: Path, rows: list[dict[str, Any]], *flags: str) -> int:
    """`data feature-bias` on rows, written to t.json."""
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = ("--input", str(tmp_path / "in.jsonl"), "--output", str(tmp_path / "t.json"))
    return main(["feature-bias", *given, *flags])


PAIRS = [
    {"premise": f"The {i} cat sat.", "hypothesis": f"The {i} {word}.", "label": label, "genre": "x"}
    for i in range(12)
    for word in ("cat", "dog")
    for label in (0 if i % 2 else 1, 2, -1)
]


def test_feature_bias_command_makes_a_paper_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = [{**row, "premise": "cat " * 80} for row in PAIRS]
    flags = ("--task", "nli_entailment_overlap", "--min-demos", "4", "--output", str(tmp_path / "tasks"))
    assert run(tmp_path, PAIRS + long, *flags) == 0
    assert "24 repeated" in capsys.readouterr().out  # a pair with two labels counts once, with its first
    task = read_task(tmp_path / "tasks/nli_entailment_overlap.json")
    assert {cell: len(task.tests[cell]) for cell in CELLS} == {"1_1": 2, "0_0": 2, "1_0": 6, "0_1": 6}
    assert (task.name, task.meanings["h1"].key) == ("nli_entailment_overlap", "Follows:")


def test_feature_bias_command_takes_a_threshold_and_a_column(tmp_path: Path) -> None:
    """Of as many classes as there are values, two are told apart."""
    genres = ("fiction", "government", "travel")
    rows = [{"text": f"Text {i}", "score": i % 2 / 2, "genre": genres[i % 3]} for i in range(60)]
    column = ("--feature", "column", "--feature-args", "name=genre", "one=government", "zero=fiction")
    label = ("--label", "score", "--threshold", "0.5", "--h2-means", "it is dry", "it is made up")
    assert run(tmp_path, rows, *column, *label, "--min-demos", "4") == 0
    task = read_task(tmp_path / "t.json")
    assert {cell: len(task.tests[cell]) for cell in CELLS} == {"1_1": 6, "0_0": 6, "1_0": 10, "0_1": 10}
    assert (task.name, task.meanings["h2"].one) == ("t", "it is dry")
    assert (task.made_from["on_neither_side"], len(task.made_from["sha256"])) == (20, 64)


ROW = {"text": "A text", "label": 1}
MISTAKES = [
    ([ROW, {"text": "x", "label": 2}], [], "line 2: the label must be 0 or 1"),
    ([{"text": "x", "label": "high"}], ["--threshold", "1"], "line 1: the label must be a number"),
    ([{"label": 1}], [], "line 1: needs a label .* and a text"),
    ([ROW], ["--feature-args", "word=x"], "word"),
    ([ROW], [], "no text in cell"),
    ([ROW], ["--feature", "overlap"], "line 1: the feature overlap"),
    ([ROW], ["--feature", "identity", "--feature-args", "one=gay"], "line 1.*no column 'gay'"),
    ([ROW], ["--task", "nli_overlap"], "no such task; choose from nli_"),
]


@pytest.mark.parametrize(("rows", "flags", "named"), MISTAKES)
def test_feature_bias_command_names_mistakes(
    rows: list[Any], flags: list[str], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, rows, *flags) == 2
    assert re.search(named, capsys.readouterr().err)
    assert not (tmp_path / "t.json").exists()


def test_feature_bias_rows_command_validates_where_features_agree(tmp_path: Path) -> None:
    train, dev = str(tmp_path / "train"), str(tmp_path / "dev")
    command = ["feature-bias-rows", "--task", "stories:overlap", "--output", train, "--dev-output", dev]
    assert main(command) == 0
    rows = {path: read_choices(path) for path in (train, dev)}
    assert [len(found) for found in rows.values()] == [200, 200]
    assert not {row.id for row in rows[train]} & {row.id for row in rows[dev]}
    assert {row.benchmark.rpartition("/")[2] for row in rows[dev]} == {"1_1", "0_0"}
    assert main(command) == 2  # nothing is replaced unasked
