"""Multiple-choice readers: four benchmarks by their fields, labels inside or apart, and what goes wrong."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import datasets
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.choices.benchmarks import write_choices
from data_modules.schema import ChoiceQuestion
from data_modules.sources import read_choices, split_labels
from storage.errors import DataError

RECORDS: dict[str, dict[str, Any]] = {
    "piqa": {"goal": "Dry a cup.", "sol1": "Use a cloth.", "sol2": "Use a stone."},
    "anli": {"obs1": "Ida left.", "obs2": "Ida was wet.", "hyp1": "It rained.", "hyp2": "It snowed ash."},
    "socialiqa": {"context": "Leo cooked.", "question": "Why?"}
    | {"answerA": "to eat", "answerB": "to fly", "answerC": "to sleep"},
    "hellaswag": {"ctx_a": "A man runs.", "ctx_b": "He", "endings": ["stops.", "melts.", "sings.", "flies."]},
}
PROMPTS = {
    "piqa": "Dry a cup.",
    "anli": "Ida left. Ida was wet.",
    "socialiqa": "Leo cooked. Why?",
    "hellaswag": "A man runs. He",
}
COUNTS = {"piqa": 2, "anli": 2, "socialiqa": 3, "hellaswag": 4}
FIRST = {"piqa": 0, "anli": 1, "socialiqa": 1, "hellaswag": 0}
"""What the benchmark's own files call the first choice (probes spec B2)."""


def lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return path


@pytest.mark.parametrize("benchmark", RECORDS)
@pytest.mark.parametrize("base", [0, 1])
def test_read_choices_takes_labels_of_another_file(benchmark: str, base: int, tmp_path: Path) -> None:
    count = COUNTS[benchmark]
    questions = lines(tmp_path / "any name", [RECORDS[benchmark]] * count)
    labels = lines(tmp_path / "labels", [str(base + i) for i in range(count)])
    found = read_choices(f"{questions}+{labels}")
    assert [example.label for example in found] == list(range(count))
    assert {example.prompt for example in found} == {PROMPTS[benchmark]}
    assert {len(example.choices) for example in found} == {count}
    assert {example.benchmark for example in found} == {benchmark}
    assert len({example.id for example in found}) == count


@pytest.mark.parametrize("benchmark", RECORDS)
def test_read_choices_takes_labels_inside(benchmark: str, tmp_path: Path) -> None:
    """Whole numbers or text, in JSON Lines, a JSON list, or a folder of the datasets library."""
    rows = [RECORDS[benchmark] | {"label": str(FIRST[benchmark] + i)} for i in range(COUNTS[benchmark])]
    wanted = list(range(COUNTS[benchmark]))
    path = lines(tmp_path / "rows", rows)
    assert [e.label for e in read_choices(path)] == wanted
    path.write_text(json.dumps([row | {"label": int(row["label"])} for row in rows]))
    assert [e.label for e in read_choices(path)] == wanted
    table = datasets.Dataset.from_list(rows)
    datasets.DatasetDict({"validation": table}).save_to_disk(str(tmp_path / "folder"))
    assert [e.label for e in read_choices(f"{tmp_path / 'folder'}:validation")] == wanted
    part = lines(tmp_path / "part", [RECORDS[benchmark] | {"label": FIRST[benchmark] + 1}] * 3)
    if COUNTS[benchmark] > 2:  # all are the same, and none tells what is counted from
        assert [e.label for e in read_choices(part)] == [1, 1, 1]


ENDINGS = RECORDS["hellaswag"]["endings"]
CTX = {"ctx_a": "A man runs.", "ctx_b": "", "label": 3}
SOCIALIQA = {"context": "Leo cooked.", "question": "Why?", "options": ["to eat", "to fly", "to sleep"]}
SPELLINGS: list[tuple[dict[str, Any], str, int]] = [
    (CTX | {"ending_options": ENDINGS}, "hellaswag-0", 3),
    (CTX | {f"opt{i}": text for i, text in enumerate(ENDINGS)}, "hellaswag-0", 3),
    (SOCIALIQA | {"answer": " To  Sleep"}, "socialiqa-0", 2),
    (SOCIALIQA | {"answer": "A"}, "socialiqa-0", 0),
    (
        {f"{part}_{i}": "x" for part in ("observation", "hypothesis") for i in (1, 2)} | {"label": 2},
        "anli-0",
        1,
    ),
    ({"uid": "u1", "old_label": "2", "example": {"uid": "u1", **RECORDS["anli"]}}, "u1", 1),  # ChaosNLI
]


@pytest.mark.parametrize(("row", "name", "label"), SPELLINGS)
def test_read_choices_knows_other_spellings(
    row: dict[str, Any], name: str, label: int, tmp_path: Path
) -> None:
    (found,) = read_choices(lines(tmp_path / "rows", [row]))
    assert (found.id, found.label) == (name, label)


texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=6)


@st.composite
def questions(draw: st.DrawFn) -> ChoiceQuestion:
    choices = tuple(draw(st.lists(texts, min_size=2, max_size=5)))
    return ChoiceQuestion(
        id=draw(texts),
        prompt=draw(texts),
        choices=choices,
        label=draw(st.integers(0, len(choices) - 1)),
        benchmark=draw(texts),
        probe=draw(texts),
        donors=tuple(draw(st.lists(st.integers(0, 9), max_size=3))),
        target=draw(st.sampled_from(["label", "unknown"])),
    )


@given(st.lists(questions(), min_size=1, max_size=4))
def test_write_choices_and_read_choices_are_inverse(
    tmp_path_factory: pytest.TempPathFactory, examples: list[ChoiceQuestion]
) -> None:
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    assert write_choices(path, examples) == len(examples)
    assert read_choices(path) == examples
    with pytest.raises(DataError, match="hold their labels themselves"):
        read_choices(f"{path}+{path}")


def test_read_choices_keeps_ids_that_tell_questions_apart(tmp_path: Path) -> None:
    row = RECORDS["piqa"] | {"label": 0}
    own = read_choices(lines(tmp_path / "own", [row | {"id": 0}, row | {"id": 7}]))
    assert [example.id for example in own] == ["0", "7"]
    twice = read_choices(lines(tmp_path / "twice", [row | {"id": 7}, row | {"id": 7}]))
    assert [example.id for example in twice] == ["piqa-0", "piqa-1"]


def test_split_labels_lets_a_file_have_a_plus_in_its_name(tmp_path: Path) -> None:
    path = lines(tmp_path / "a+b", [RECORDS["piqa"] | {"label": 0}])
    assert split_labels(str(path)) == (str(path), "")
    assert len(read_choices(path)) == 1
    assert split_labels("stories:choices_dev") == ("stories:choices_dev", "")


PIQA = RECORDS["piqa"]


@pytest.mark.parametrize(
    ("rows", "labels", "named"),
    [
        ([PIQA, PIQA], ["0"], "labels: 1 .*rows has 2"),
        ([PIQA, PIQA], ["0", "2"], "labels, line 2.*label 2"),
        ([PIQA, PIQA, PIQA], ["0", "", "1"], "labels, line 2"),
        ([PIQA], None, "rows, line 1: .*'label'"),
        ([PIQA | {"label": -1}], None, "label -1"),
        ([PIQA | {"label": 0}, {"goal": "x", "label": 0}], None, "line 2: .*sol1"),
        ([{"question": "?"}], None, "rows: unknown format"),
        ([{"id": "a", "prompt": "p", "choices": ["x", "y"], "label": 2}], None, "line 1.*label 2"),
        ([SOCIALIQA | {"answer": "to run"}], None, "line 1: the answer 'to run'"),
        ([SOCIALIQA | {"answer": "D"}], None, "line 1: the answer 'D'"),
    ],
)
def test_read_choices_names_the_line(
    rows: list[Any], labels: list[str] | None, named: str, tmp_path: Path
) -> None:
    source = str(lines(tmp_path / "rows", rows))
    if labels is not None:
        source += f"+{lines(tmp_path / 'labels', list(labels))}"
    with pytest.raises(DataError, match=named):
        read_choices(source)


def test_embedded_choices_need_their_prompt() -> None:
    train, dev = (read_choices(f"stories:choices_{split}") for split in ("train", "dev"))
    assert not {example.prompt for example in train} & {example.prompt for example in dev}
    for example in dev:
        right = example.choices[example.label]
        assert right in example.prompt
        assert not any(wrong in example.prompt for wrong in example.choices if wrong != right)
    # Without the prompt nothing tells: a word is right about as often as it is there.
    shown = Counter(choice for example in train for choice in example.choices)
    right = Counter(example.choices[example.label] for example in train)
    assert max(right[word] / shown[word] for word in right) < 0.55


def test_read_choices_reads_piqa(shared: Path) -> None:
    folder = shared / "data" / "piqa"
    found = read_choices(f"{folder / 'valid.jsonl'}+{folder / 'valid-labels.lst'}")
    assert len(found) == 1838
    assert sum(example.label == 0 for example in found) == 910  # probes spec B6
