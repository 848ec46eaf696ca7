"""Multiple-choice readers: four benchmarks by their fields, labels inside or apart, and what goes
wrong.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
import pytest

from interventune.data_modules.schema.questions import ChoiceQuestion
from interventune.data_modules.sources import read_choices, split_labels
from interventune.storage.errors import DataError

OBSERVED = {"obs1": "Ida left.", "obs2": "Ida was wet."}
TAILS = ["stops.", "melts.", "sings.", "flies."]
BENCHMARKS: list[tuple[str, dict[str, str], dict[str, Any], int]] = [
    ("piqa", {"goal": "Dry a cup."}, {"sol1": "Use a cloth.", "sol2": "Use a stone."}, 0),
    ("anli", OBSERVED, {"hyp1": "It rained.", "hyp2": "It snowed ash."}, 1),
    (
        "anli",
        {"observation_1": "A", "observation_2": "B"},
        {"hypothesis_1": "C", "hypothesis_2": "D"},
        1,
    ),
    (
        "socialiqa",
        {"context": "C", "question": "Why?"},
        {"answerA": "a", "answerB": "b", "answerC": "c"},
        1,
    ),
    ("hellaswag", {"ctx_a": "A man runs.", "ctx_b": "He"}, {"endings": TAILS}, 0),
    ("hellaswag", {"ctx_a": "A man runs.", "ctx_b": "He"}, {"ending_options": TAILS}, 0),
]
"""Name, fields of the prompt and of the choices, and what labels call the first one."""


def lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return path


@pytest.mark.parametrize(("name", "prompt", "fields", "first"), BENCHMARKS)
def test_read_choices_takes_labels_apart_or_inside(
    name: str, prompt: dict[str, str], fields: dict[str, Any], first: int, tmp_path: Path
) -> None:
    """Counted from 0 or 1, apart; as the benchmark does inside: whole numbers or text, in JSON
    Lines, a JSON list, or a folder of the datasets library.
    """
    row, texts = (
        prompt | fields,
        tuple(next(iter(fields.values())) if len(fields) == 1 else fields.values()),
    )
    count, asked = len(texts), " ".join(prompt.values())
    expected = [ChoiceQuestion(f"{name}-{i}", asked, texts, i, name) for i in range(count)]
    questions = lines(tmp_path / "any name", [row] * count)
    for base in (0, 1):
        labels = lines(tmp_path / "labels", [str(base + i) for i in range(count)])
        assert read_choices(f"{questions}+{labels}") == expected
    path = lines(tmp_path / "rows", rows := [row | {"label": str(first + i)} for i in range(count)])
    assert read_choices(path) == expected
    path.write_text(json.dumps([row | {"label": first + i} for i in range(count)]))
    assert read_choices(path) == expected
    table = datasets.Dataset.from_list(rows)
    datasets.DatasetDict({"validation": table}).save_to_disk(str(tmp_path / "folder"))
    assert read_choices(f"{tmp_path / 'folder'}:validation") == expected
    if count > 2:  # all are the same, and none tells what is counted from
        part = lines(tmp_path / "part", [row | {"label": first + 1}] * 3)
        assert [e.label for e in read_choices(part)] == [1, 1, 1]


BBQ = {
    "context": "A and B met.",
    "question": "Who?",
    "ans0": "A",
    "ans1": "B",
    "ans2": "Unknown",
    "label": 2,
}
PIQA = BENCHMARKS[0][1] | BENCHMARKS[0][2]


def test_read_choices_keeps_ids_that_tell_questions_apart(tmp_path: Path) -> None:
    for ids, kept in (([0, 7], ["0", "7"]), ([7, 7], ["piqa-0", "piqa-1"])):
        path = lines(tmp_path / "a+b", [PIQA | {"label": 0, "id": i} for i in ids])
        assert split_labels(str(path)) == (str(path), "")  # the file has a + in its name
        assert [example.id for example in read_choices(path)] == kept


@pytest.mark.parametrize(
    ("rows", "labels", "named"),
    [
        ([PIQA, PIQA], ["0"], "labels: 1 .*rows has 2"),
        ([PIQA, PIQA], ["0", "2"], "labels, line 2.*label 2"),
        ([PIQA], None, "rows, line 1: .*'label'"),
        ([PIQA | {"label": 0}, {"goal": "x", "label": 0}], None, "line 2: .*sol1"),
        *(
            ([BBQ | {"context_condition": said}], None, "line 1.*context_condition")
            for said in ("ambiguous", "Ambig", "", None)
        ),
        ([{"question": "?"}], None, "rows: unknown format"),
        (
            [{"id": "a", "prompt": "p", "choices": ["x", "y"], "label": 2}],
            None,
            "line 1.*label is 2",
        ),
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


def test_bbqs_target_follows_its_condition(tmp_path: Path) -> None:
    conditions = [{}, {"context_condition": "ambig"}, {"context_condition": "disambig"}]
    path = lines(tmp_path / "rows", [BBQ | more for more in conditions])
    assert [example.target for example in read_choices(path)] == ["label", "unknown", "label"]


def test_read_choices_reads_piqa(shared: Path) -> None:
    folder = shared / "data" / "piqa"
    found = read_choices(f"{folder / 'valid.jsonl'}+{folder / 'valid-labels.lst'}")
    assert len(found) == 1838
    assert (
        sum(example.label == 0 for example in found) == 910
    )  # Shen and Kejriwal 2022, section 4.1
