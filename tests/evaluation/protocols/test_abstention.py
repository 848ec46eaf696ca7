"""Abstention in the faithfulness protocol, by naive loops."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from interventune.data_modules.schema.questions import QAExample
from interventune.evaluation.__main__ import main
from interventune.evaluation.answering import checkpoint as answering
from tests.evaluation.cells import Cells, Patch, evaluate, examples_of
from tests.evaluation.fake_answerer import install
from tests.metrics.test_abstention import abstention

STORIES = ("--data", "stories:mixed_dev", "--limit", "60")
Rows = list[dict[str, Any]]
Units = dict[str, Rows]  # by question


def mixed(seed: str) -> Callable[[QAExample], str]:
    """Right, wrong, unknown, and now and then nothing."""

    def rule(example: QAExample) -> str:
        answers = (*example.gold[:1], "Mars", "unknown", "unknown", "!timeout")
        return Random(f"{seed} {example.id} {example.variant}").choice(answers)

    return rule


def pairs(rows: Rows, checkpoint: str) -> Units:
    """The questions that the checkpoint answered in both stories, `os` and `ts_r`."""
    units: Units = {}
    for row in rows:
        if row["checkpoint"] == checkpoint and row["variant"] != "ts" and "failure" not in row:
            units.setdefault(row["id"], []).append(row)
    return {name: both for name, both in units.items() if len(both) == 2}


def measured(rows: Rows) -> dict[str, float]:
    abstained = [row["prediction"] in ("unknown", "It is not mentioned.") for row in rows]
    unanswerable = [row["variant"] != "os" or not row["references"] for row in rows]
    return abstention(abstained, unanswerable, [row["em"] for row in rows])


def test_pairs_and_their_changes_match_naive_loops(tmp_path: Path, monkeypatch: Patch) -> None:
    """All rows about a text are one unit, also those of two sides of a change."""
    install(monkeypatch, {"one": mixed("a"), "two": mixed("b")})
    cells = evaluate(tmp_path / "r", "faithfulness", "--checkpoint", "one", "two", *STORIES)
    rows = examples_of(tmp_path / "r")
    one, two = (pairs(rows, name) for name in ("one", "two"))
    shared = one.keys() & two.keys()
    for against, names in (("", two.keys()), ("one", shared)):
        rows_of = ([row for name in names for row in x.get(name, ())] for x in (one, two))
        first, last = map(measured, rows_of)
        texts = {two[name][0]["passage"] for name in names}
        for measure, value in last.items():
            row = cells.row(measure, checkpoint="two", against=against, variant="os+ts_r")
            assert row["value"] == pytest.approx(value - bool(against) * first[measure])
            if measure == "grounded_f1":
                assert row["low"] < row["value"] < row["high"]
                sizes = 2 * len(names), len(texts), "texts"
                assert (row["n"], row["units"], row["unit"]) == sizes
    never = {*cells.frame.query("checkpoint == 'never unknown' and low == low")["measure"]}
    assert ("exact" in never, "abstention_recall" in never) == (True, False)  # by construction 0
    abstained = sum(row["prediction"] == "unknown" for both in two.values() for row in both)
    assert cells.n("abstention_precision", checkpoint="two", variant="os+ts_r") == abstained
    assert not (cells.frame["coverage"].astype(str) != "").any()  # words have no score
    assert "| F1 of unknown, os+ts_r | " in (tmp_path / "r" / "report.md").read_text()


def official(rows: Rows) -> dict[str, float]:
    """SQuAD 2's official evaluation, on questions with one answer or none."""

    def scores(row: dict[str, Any]) -> tuple[float, float]:
        gold = " ".join(row["references"][:1]).lower().split()
        answer = row["prediction"].replace("It is not mentioned.", "").lower().split()
        common = (Counter(answer) & Counter(gold)).total()
        f1 = 2 * common / (len(answer) + len(gold)) if answer and gold else answer == gold
        return answer == gold, f1

    parts = {"": rows, "HasAns_": [], "NoAns_": []}
    for row in rows:
        parts["HasAns_" if row["references"] else "NoAns_"].append(row)
    return {
        f"{side}{name}": fmean(column)
        for side, part in parts.items()
        for name, column in zip(("exact", "f1"), zip(*map(scores, part), strict=True), strict=True)
    }


def test_official_scores_and_trivial_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Failures are part of no score, and shown; where all are answerable, none abstains."""
    words = ["Ana Ben", "Ben", "It is not mentioned.", "!timeout", "Ben slept Ana", "Ana"]
    install(monkeypatch, {"one": lambda example: words[int(example.id) % len(words)]})
    answers = [[{"text": "Ana Ben", "answer_start": 9}], []]
    qas = [{"id": str(i), "question": "Who?", "answers": answers[i % 5 > 2]} for i in range(30)]
    story = "It rains Ana Ben slept."
    for name, part in (("some", qas), ("none", [one for one in qas if one["answers"]])):
        document = {"data": [{"paragraphs": [{"context": story, "qas": part}]}]}
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    command = ("faithfulness", "--checkpoint", "one", "--variants", "os", "--data")
    wrong = [
        "faithfulness",
        "--checkpoint=always unknown=one",
        "--data=x",
        f"--output={tmp_path}/x",
    ]
    assert main(wrong) == 2
    none = evaluate(tmp_path / "without", *command, tmp_path / "none.json").frame["measure"]
    assert not none.str.contains("abstention").any()
    cells = evaluate(tmp_path / "r", *command, tmp_path / "some.json")
    rows = [row for row in examples_of(tmp_path / "r") if "failure" not in row]
    place = {"checkpoint": "one", "variant": "os"}
    expected = official(rows) | measured(rows)
    assert {name: cells(name, **place) for name in expected} == pytest.approx(expected)
    totals = {"exact": 25, "HasAns_exact": sum(bool(row["references"]) for row in rows)}
    assert {name: cells.n(name, **place) for name in totals} == totals
    unanswerable = sum(not row["references"] for row in rows) / 25
    for name, exact in (("always unknown", unanswerable), ("never unknown", 1 - unanswerable)):
        assert cells("exact", checkpoint=name, variant="os") == pytest.approx(exact)
        recall = cells("abstention_recall", checkpoint=name, variant="os")
        assert recall == (name == "always unknown")
    report = (tmp_path / "r" / "report.md").read_text()
    assert "| without an answer (%) | 16.7" in report
    assert "Unknown was said as: one: 5 not stated." in report


@pytest.mark.parametrize(
    ("model", "data"), [("qa", "conversation_dev"), ("typed.ckpt", "mixed_dev")]
)
def test_the_threshold_of_unknown_is_swept(
    model: str, data: str, room: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    """A model says unknown above 0; at a coverage, to the questions with the highest scores."""
    real, lift = answering.decode_answers, 2.5  # with which the span model does say unknown
    lifted = lambda *scores: real(*scores[:-1], scores[-1] + lift)  # noqa: E731
    monkeypatch.setattr(answering, "decode_answers", lifted)
    command = ("faithfulness", "--checkpoint", f"m={room / model}", "--data", f"stories:{data}")
    cells: Cells = evaluate(tmp_path / "r", *command, "--limit", "30")
    rows = examples_of(tmp_path / "r")
    for row in rows:
        assert row["unknown"] == (row["unknown_score"] > 0)
        assert row["unknown"] or row["guess"] == row["prediction"]
    assert model != "qa" or any(row["unknown"] and row["guess_f1"] > 0 == row["f1"] for row in rows)
    part = [row for both in pairs(rows, "m").values() for row in both]
    ordered = sorted(part, key=lambda row: float(row["unknown_score"]))
    answerable = [row["unknown_score"] for row in ordered if row["variant"] == "os"]
    for name, refused in (("recall_over_05", 0.05), ("recall_over_10", 0.1)):
        threshold = np.quantile(answerable, 1 - refused)
        recall = fmean(row["unknown_score"] > threshold for row in part if row["variant"] != "os")
        cell = cells.row(name, checkpoint="m", variant="os+ts_r", coverage="")
        assert cell["value"] == pytest.approx(recall)
        assert cell["low"] <= recall <= cell["high"]
    for coverage in range(100, 0, -10):
        cell = {"checkpoint": "m", "variant": "os+ts_r", "coverage": coverage}
        answered = ordered[: -(-len(part) * coverage // 100)]
        earned = sum(row["guess_f1"] for row in answered if row["variant"] == "os")
        assert cells("selective_f1", **cell) == pytest.approx(earned / len(answered))
        assert cells.n("selective_f1", **cell) == len(answered)
        assert cells("threshold", **cell) == pytest.approx(answered[-1]["unknown_score"])
        abstained = [row not in answered for row in part]
        expected = abstention(abstained, [row["variant"] != "os" for row in part], 0)
        for measure in ("abstention_recall", "abstention_precision", "over_abstention"):
            assert cells(measure, **cell) == pytest.approx(expected[measure], nan_ok=True)
