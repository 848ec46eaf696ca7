"""Multiple choice: labels inside or apart, ids, and what goes wrong (layouts: test_layouts.py)."""

import json
from pathlib import Path
from typing import Any

import datasets
import pytest

from interventune.data_modules.schema.questions import ChoiceQuestion
from interventune.data_modules.sources import read_choices, split_labels
from interventune.storage.errors import DataError

PIQA = {"goal": "Dry a cup.", "sol1": "Use a cloth.", "sol2": "Use a stone."}
BBQ = {"context": "A and B met.", "question": "Who?", "label": 2}
BBQ |= {"ans0": "A", "ans1": "B", "ans2": "Unknown"}
SOCIAL = {"context": "C", "question": "Why?", "answerA": "a", "answerB": "b", "answerC": "c"}


def lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return path


@pytest.mark.parametrize(
    ("name", "row", "prompt", "texts", "first"),
    [
        ("socialiqa", SOCIAL, "C Why?", ("a", "b", "c"), 1),
        (
            "hellaswag",
            {"ctx_a": "A", "ctx_b": "He", "endings": [*"abcd"]},
            "A He",
            tuple("abcd"),
            0,
        ),
    ],
)
def test_labels_are_apart_or_inside(
    name: str, row: dict[str, Any], prompt: str, texts: tuple[str, ...], first: int, tmp_path: Path
) -> None:
    """Counted from 0 or 1, apart; as the benchmark does inside: whole numbers or text, in JSON
    Lines, a JSON list, or a folder of the datasets library.
    """
    count = len(texts)
    expected = [ChoiceQuestion(f"{name}-{i}", prompt, texts, i, name) for i in range(count)]
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
    part = lines(tmp_path / "part", [row | {"label": first + 1}] * 3)  # from 0 or 1: unclear
    assert [question.label for question in read_choices(part)] == [1, 1, 1]


def test_ids_are_kept_if_they_tell_questions_apart(tmp_path: Path) -> None:
    for ids, names in (([0, 7], ["0", "7"]), ([7, 7], ["piqa-0", "piqa-1"])):
        path = lines(tmp_path / "a+b", [PIQA | {"label": 0, "id": i} for i in ids])
        assert split_labels(str(path)) == (str(path), "")  # the file has a + in its name
        assert [question.id for question in read_choices(path)] == names


@pytest.mark.parametrize(
    ("rows", "labels", "named"),
    [
        ([PIQA, PIQA], ["0"], "labels: 1 .*rows has 2"),
        ([PIQA, PIQA], ["0", "2"], "labels, line 2.*label 2"),
        ([PIQA], [], "rows, line 1: .*'label'"),
        ([PIQA | {"label": 0}, {"goal": "x", "label": 0}], [], "line 2: .*sol1"),
        ([BBQ | {"context_condition": "Ambig"}], [], "line 1.*context_condition"),
        ([BBQ | {"context_condition": None}], [], "line 1.*context_condition"),
        ([{"question": "?"}], [], "rows: unknown format"),
        ([{"id": "a", "prompt": "p", "choices": ["x", "y"], "label": 2}], [], "1.*label is 2"),
    ],
)
def test_mistakes_are_named(rows: list[Any], labels: list[str], named: str, tmp_path: Path) -> None:
    source = str(lines(tmp_path / "rows", rows))
    if labels:
        source += f"+{lines(tmp_path / 'labels', [*labels])}"
    with pytest.raises(DataError, match=named):
        read_choices(source)


def test_bbqs_target_follows_its_condition(tmp_path: Path) -> None:
    conditions = [{}, {"context_condition": "ambig"}, {"context_condition": "disambig"}]
    path = lines(tmp_path / "rows", [BBQ | more for more in conditions])
    assert [question.target for question in read_choices(path)] == ["label", "unknown", "label"]


def test_piqas_file_is_read_whole(shared: Path) -> None:
    folder = shared / "data" / "piqa"
    questions = read_choices(f"{folder / 'valid.jsonl'}+{folder / 'valid-labels.lst'}")
    # Shen and Kejriwal 2022, section 4.1
    assert (len(questions), sum(question.label == 0 for question in questions)) == (1838, 910)
