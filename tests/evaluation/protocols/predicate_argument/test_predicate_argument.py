"""`python -m evaluation predicate-argument`: shares against questions counted by hand."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from data_modules.schema import QAExample
from evaluation.protocols.predicate_argument.stories import as_records, predicate_argument_rows
from tests.evaluation.checkpoints import examples_of, numbers, report_of, save_ckpt, told
from tests.evaluation.fake_answerer import install, right, turned


def mixed(example: QAExample) -> str:
    """Org: right, but no for every ball. Mod: what is no answer. New: fails about the car."""
    if example.question.startswith("Was there"):
        return "the red one"
    if example.question.startswith("Was the a"):
        return "!timed out" if "car" in example.question else turned(example)
    return "no" if "ball" in example.question else right(example)


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    install(monkeypatch, {"one": mixed})
    return report_of(tmp_path / "r", "predicate-argument", "--checkpoint", "one")


def test_shares_are_those_of_the_questions(report: dict[str, Any]) -> None:
    """26 of the 520 questions ask whether a ball has its own colour; 52 ask about a car."""
    expected = {
        "org/accuracy": 494 / 520,
        "org/yes": 234 / 520,
        "org/no": 286 / 520,
        "org/n": 520,
        "mod/accuracy": 0.0,
        "mod/other": 1.0,
        "new/accuracy": 0.0,
        "new/yes": 0.5,
        "new/n": 520 - 52,
        "new/failures": 52,
        "schema/1/org/accuracy": 1.0,
        "schema/2/org/accuracy": 0.75,
        "schema/1/new/n": 52,
        "schema/5/org/n": 104,
    }
    assert {key: report[key] for key in expected} == pytest.approx(expected)


def test_an_example_is_one_question_in_one_wording(report: dict[str, Any], tmp_path: Path) -> None:
    rows = examples_of(tmp_path / "r")
    assert Counter(row["wording"] for row in rows) == {"org": 520, "mod": 520, "new": 520}
    assert len({row["id"] for row in rows}) == len(rows)
    assert sum(row.get("right", False) for row in rows) == 494
    assert Counter(row.get("failure") for row in rows)["timed out"] == 52


def test_the_page_says_what_counts(report: dict[str, Any], tmp_path: Path) -> None:
    text = (tmp_path / "r" / "report.md").read_text()
    for part in ("130 stories", "260 yes and 260 no", "Guessing gets 50 %", "52 timed out"):
        assert part in text
    assert "| one | 95.0 (55.0) | 0.0 (0.0) | 0.0 (50.0) | 520/520/468 | 52 |" in text
    assert (tmp_path / "r" / "predicate_argument.png").read_bytes().startswith(b"\x89PNG")


def test_constant_answers_get_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, {"yes": lambda _: "Yes", "no": lambda _: "no"})
    flags = ("--checkpoint", "yes", "no", "--negated")
    report = report_of(tmp_path / "r", "predicate-argument", *flags)
    values = {value for key, value in numbers(report).items() if key.endswith("accuracy")}
    assert values == {0.5}
    assert report["yes/negated/mod/n"] == 260
    assert report["no/negated/schema/3/new/no"] == 1.0


def test_negated_stories_stand_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, report: dict[str, Any]
) -> None:
    """A model that reads over the not is right about half of them, and of the others as before."""
    install(monkeypatch, {"one": lambda e: "yes" if "not" in e.context else mixed(e)})
    both = report_of(tmp_path / "s", "predicate-argument", "--checkpoint", "one", "--negated")
    for key, value in numbers(report).items():
        assert both[key] == value
    assert both["negated/org/accuracy"] == 0.5
    assert "negated stories" in (tmp_path / "s" / "report.md").read_text()


def test_own_stimuli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "stimuli.json"
    path.write_text(json.dumps(as_records(predicate_argument_rows(pairs=[("pink", "grey")])[:3])))
    one = install(monkeypatch, {"one": right})["one"]
    report = report_of(tmp_path / "r", "predicate-argument", "--checkpoint", "one", "--stimuli", path)
    assert (report["org/n"], report["org/accuracy"]) == (3, 1.0)
    assert {example.context for example in one.asked} == {
        "The pink car was standing in front of a grey house."
    }
    assert len(report["about"]["stimuli"]["sha256"]) == 64


def test_mistakes_cost_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spans = save_ckpt(tmp_path / "spans.ckpt")
    asked = ("predicate-argument", "--checkpoint", spans, "--output", tmp_path / "r")
    assert "cannot say yes or no" in told(capsys, *asked)
    (tmp_path / "bad.json").write_text("[{}]")
    assert "row 1" in told(capsys, *asked, "--stimuli", tmp_path / "bad.json")
    assert not (tmp_path / "r").exists()
