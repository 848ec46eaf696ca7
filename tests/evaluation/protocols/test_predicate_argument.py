"""`python -m evaluation predicate-argument`: shares against questions counted by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from data_modules.schema import QAExample
from tests.evaluation.checkpoints import evaluate
from tests.evaluation.fake_answerer import install, right, turned


def mixed(example: QAExample) -> str:
    """Org: right, but no for every ball. Mod: what is no answer. New: fails about the car, else wrong."""
    if example.question.startswith("Was there"):
        return "the red one"
    if example.question.startswith("Was the a"):
        return "!timed out" if "car" in example.question else turned(example)
    return "no" if "ball" in example.question else right(example)


def test_shares_match_questions_counted_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """26 of the 520 questions ask whether a ball has its own colour; 52 ask about a car."""
    install(monkeypatch, {"one": mixed})
    cells = evaluate(tmp_path / "r", "predicate-argument", "--checkpoint", "one")
    for place, measure, value, n in (
        ({"wording": "org"}, "accuracy", 494 / 520, 520),
        ({"wording": "org"}, "yes", 234 / 520, 520),
        ({"wording": "org"}, "no", 286 / 520, 520),
        ({"wording": "mod"}, "accuracy", 0, 520),
        ({"wording": "mod"}, "other", 1, 520),
        ({"wording": "new"}, "accuracy", 0, 520 - 52),
        ({"wording": "new"}, "yes", 0.5, 520 - 52),
        ({"wording": "new"}, "failed", 52 / 520, 520),
        ({"wording": "org", "schema": 2}, "accuracy", 0.75, 104),
        ({"wording": "new", "schema": 1}, "accuracy", 0, 52),
    ):
        row = cells.row(measure, checkpoint="one", **place)
        assert (row["value"], row["n"]) == (pytest.approx(value), n), (place, measure)
