"""The paper's 22 tasks from small files in the layouts of the five data sets."""

from __future__ import annotations

import csv
import json
from itertools import product
from pathlib import Path
from typing import Any

import datasets
import pytest

from data_modules.__main__ import main
from data_modules.tasks.feature_bias import read_task
from data_modules.tasks.paper_tasks import LGBTQ, PAPER_TASKS, labelled_texts
from data_modules.tasks.predicates import LabelledText, feature
from data_modules.tasks.wording import Wording, family, own_wordings
from storage.errors import DataError

TWICE = (False, True)


def reviews() -> list[dict[str, Any]]:
    """Every combination of sentiment and the features of a text."""
    return [
        {"label": int(good)}
        | {
            "text": f"{'Good' if good else 'Bad'} {'food' if food else 'place'} {i}, "
            f"{'nice' if nice else 'dull'} {'REALLY' if loud else 'really'} {'so ' * 45 * long}it is"
            f"{'!' if end else '.'}"
        }
        for i, (good, food, nice, loud, long, end) in enumerate(product(*[TWICE] * 6))
    ]


def comments() -> list[dict[str, Any]]:
    """Of every pair of groups, toxic and not."""
    groups = ["female", "male", *LGBTQ.split(","), "black", "white", "muslim", "christian", "jewish"]
    found = []
    for i, (toxic, group, loud, long) in enumerate(product(TWICE, groups, TWICE, TWICE)):
        text = f"comment {i} {'LOUD' if loud else 'low'} {'word ' * 45 * long}"
        found.append(
            {"comment_text": text, "toxicity": 0.5 if toxic else 0.49, **dict.fromkeys(groups, "0.0")}
        )
        found[-1] |= {group: "0.8"}
    return [*found, {"comment_text": "nobody looked", "toxicity": 0.9, **dict.fromkeys(groups, "")}]


def premises() -> list[dict[str, Any]]:
    found = []
    for i, (gold, genre, overlap, longer, no) in enumerate(
        product(
            ("entailment", "neutral", "contradiction"),
            ("government", "fiction", "telephone", "travel"),
            *[TWICE] * 3,
        )
    ):
        premise = f"there is not a {i} red cat in the house"
        words = (
            f"a {i} {'cat' if overlap else 'dog'} is {'not ' * no}red " + "in the house a red cat " * longer
        )
        found.append({"sentence1": premise, "sentence2": words, "gold_label": gold, "genre": genre})
    return [*found, {"sentence1": "x", "sentence2": "y", "gold_label": "-", "genre": "fiction"}]


def passages() -> list[dict[str, Any]]:
    rows = []
    for i, (answer, first, same, known, long) in enumerate(product(TWICE, ("is", "does"), *[TWICE] * 3)):
        passage = f"zebra {i} the same as before " + "it ran " * (32 if long else 8)
        question = f"{first} a {'zebra' if known else 'lion'} {'the same as' if same else 'like'} {i}"
        rows.append({"question": question, "passage": passage, "answer": answer, "title": "t"})
    return rows


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A saved dataset, a folder that load_dataset reads, CSV, JSON Lines, parquet."""
    root = tmp_path_factory.mktemp("sources")
    datasets.DatasetDict({"train": datasets.Dataset.from_list(reviews())}).save_to_disk(str(root / "imdb"))
    (root / "yelp").mkdir()
    starred = [
        {"stars": 5 if row["label"] else 2, "text": f"{row['text'][:-1]} here{row['text'][-1]}"}
        for row in reviews()
    ]
    lines(root / "yelp" / "train.jsonl", [*starred, {"stars": 3, "text": "So so."}])
    with open(root / "civil.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, list(comments()[0]))
        writer.writeheader()
        writer.writerows(comments())
    lines(root / "mnli.jsonl", premises())
    datasets.Dataset.from_list(passages()).to_parquet(str(root / "boolq.parquet"))
    return {
        "imdb": f"{root / 'imdb'}:train",
        "yelp": f"hub:{root / 'yelp'}:train",
        "civil": str(root / "civil.csv"),
        "mnli": str(root / "mnli.jsonl"),
        "boolq": str(root / "boolq.parquet"),
    }


def test_all_22_from_five_data_sets(
    sources: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [part for kind, source in sources.items() for part in (f"--{kind}", source)]
    command = ["feature-bias-tasks", *flags, "--output", str(tmp_path / "tasks"), "--min-demos", "1"]
    assert main(command) == 0
    assert len(capsys.readouterr().out.splitlines()) == 22
    kinds = [family(name) for name in PAPER_TASKS]
    assert [kinds.count(kind) for kind in ("nli", "sa", "comments", "boolq")] == [5, 6, 7, 4]
    for name, row in PAPER_TASKS.items():
        task = read_task(tmp_path / "tasks" / f"{name}.json")
        assert task.name == name
        assert all(task.tests[cell] for cell in task.cells), name
        assert all(wording.key and wording.words for wording in own_wordings(name).values())
        if row.feature not in ("column", "identity"):
            predicate = feature(row.feature, row.options)
            for example in (*task.agreeing(), *task.tests["1_0"], *task.tests["0_1"]):
                first, _, second = example.question.partition("\n")
                assert predicate.value(LabelledText("", first, second, 0)) == int(example.split[2])
    counts = read_task(tmp_path / "tasks/comments_toxicity_gender_lgbtq.json").made_from
    assert counts["on_neither_side"] == 1, "nobody annotated it"
    assert main(command) == 2, "nothing is replaced unasked"
    assert main([*command, "--overwrite", "--task", "nli_entailment_overlap"]) == 0


def test_texts_are_as_short_as_the_released_ones(tmp_path: Path) -> None:
    rows = [{"text": "word " * n, "label": n % 2} for n in (78, 79, 80)]
    found = list(labelled_texts(str(lines(tmp_path / "imdb", rows)), "imdb"))
    assert [len(text.text.split()) for text in found] == [78, 79]
    pairs = [{"passage": "p" * n, "question": "is it", "answer": "yes"} for n in (494, 495)]
    header = {"question": "question", "passage": "passage", "answer": "answer"}
    found = list(labelled_texts(str(lines(tmp_path / "boolq", [header, *pairs])), "boolq"))
    assert [len(text.joined) for text in found] == [500]
    pairs = [{"premise": "a " * 40, "hypothesis": "b " * n, "label": 2, "genre": "x"} for n in (39, 40)]
    (pair,) = labelled_texts(str(lines(tmp_path / "mnli", pairs)), "mnli")
    assert (pair.label, pair.columns["genre"]) == (0, "x")


MISTAKES = [
    ("imdb", {"text": "x", "label": 3}, "line 1: label: must be one of 1, pos, positive, 0, .*found 3"),
    ("yelp", {"text": "x", "stars": "many"}, "line 1: stars: must be a number, found 'many'"),
    ("mnli", {"premise": "x", "label": 0}, "line 1: no text; expected the field hypothesis or sentence2"),
    (
        "boolq",
        {"passage": "x", "question": "y"},
        "line 1: no label; expected one of the fields answer, label",
    ),
]


@pytest.mark.parametrize(("kind", "row", "named"), MISTAKES)
def test_mistakes_name_line_and_field(kind: Any, row: dict[str, Any], named: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=named):
        list(labelled_texts(str(lines(tmp_path / "rows", [row])), kind))


def test_what_is_missing_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = str(lines(tmp_path / "mnli.jsonl", premises()))
    for flags, named in (
        ([], "name a data set"),
        (["--task", "nli_overlap", "--mnli", source], "no such task"),
        (["--task", "boolq_answer_qword", "--mnli", source], "needs --boolq"),
        (["--mnli", str(tmp_path / "gone.csv")], "no such file"),
    ):
        assert main(["feature-bias-tasks", *flags, "--output", str(tmp_path / "tasks")]) == 2
        assert named in capsys.readouterr().err
    assert not (tmp_path / "tasks").exists()


def test_own_wordings_of_names_that_look_alike() -> None:
    """Brief is 1 of a review, long is 1 of a passage, the shorter second sentence is 1 of a pair."""
    assert own_wordings("sentiment_length")["h2"].words == ("long", "brief")
    assert own_wordings("boolq_length")["h2"].words == ("brief", "long")
    assert own_wordings("mnli_length")["h2"].key == own_wordings("nli_entailment_length")["h2"].key
    assert own_wordings("nli_entailment_uppercase")["h2"] == Wording()
    assert own_wordings("spam_length") == {"h1": Wording(), "h2": Wording()}
