"""`evaluate negation` and `predicate-argument`: shares of questions counted by hand."""

from pathlib import Path

import pytest

from interventune.data_modules.schema.questions import QAExample
from tests.evaluation.cells import Patch, evaluate
from tests.evaluation.fake_answerer import install, right, turned
from tests.evaluation.protocol_cases import write_rows

# The pair's answers, the kind of change, and what is said to either story.
PAIRS = {
    "a": ("yes", "no", "scope", "yes", "no"),  # both right
    "b": ("yes", "no", "scope", "Yes.", "yes"),  # the original only
    "c": ("no", "yes", "affirmative", "the red car", "yes"),  # the other only
    "d": ("no", "yes", "affirmative", "no", "!timed out"),  # counted apart
    "e": ("yes", "no", "", "unknown", "yes"),  # neither
}


def answer_of(example: QAExample) -> str:
    name, story = example.context.split()
    return PAIRS[name][3 + (story == "mod")]


def test_negation_shares_match_pairs_counted_by_hand(tmp_path: Path, monkeypatch: Patch) -> None:
    rows = [
        {"id": name, "dataset": "coqa" if name in "ab" else "hotpotqa", "edit": edit}
        | {"story_org": f"{name} org", "story_mod": f"{name} mod", "question": "Was it?"}
        | {"history": [["Who?", "Tom"]], "answer_org": org, "answer_mod": mod}
        for name, (org, mod, edit, *_) in PAIRS.items()
    ]
    write_rows(tmp_path / "pairs.jsonl", rows)
    fakes = install(monkeypatch, {"one": answer_of, "best": right})
    flags = ["--pairs", f"{tmp_path}/pairs.jsonl", "--checkpoint", "one", "best"]
    cells = evaluate(tmp_path / "r", "negation", *flags)
    one = {"checkpoint": "one"}
    eighths = {"comb": 2, "org": 4, "mod": 4, "yes": 5, "no": 1, "other": 2}
    for measure, count in eighths.items():
        row = cells.row(measure, **one)
        assert (row["value"], row["n"]) == (pytest.approx(count / 8), 4), measure
    assert (cells("failed", **one), cells.n("failed", **one)) == (1 / 5, 5)
    edits = ("scope", "affirmative", "other")
    assert [cells.n("comb", **one, edit=name) for name in edits] == [2, 1, 1]
    assert cells("comb", **one, data="coqa") == 0.5
    assert [cells(measure, checkpoint="best") for measure in ("comb", "org", "mod")] == [1, 1, 1]
    assert {turn.answer for example in fakes["one"].asked for turn in example.history} == {"Tom"}


def mixed(example: QAExample) -> str:
    """Org: right, but no for every ball. Mod: no answer. New: fails about the car, else wrong."""
    if example.question.startswith("Was there"):
        return "the red one"
    if example.question.startswith("Was the a"):
        return "!timed out" if "car" in example.question else turned(example)
    return "no" if "ball" in example.question else right(example)


def test_predicate_argument_counted_by_hand(tmp_path: Path, monkeypatch: Patch) -> None:
    """26 of the 520 questions ask whether a ball has its own colour; 52 ask about a car."""
    install(monkeypatch, {"one": mixed})
    cells = evaluate(tmp_path / "r", "predicate-argument", "--checkpoint", "one")
    for place, measure, value, n in (
        ({"wording": "org"}, "accuracy", 494 / 520, 520),
        ({"wording": "org"}, "no", 286 / 520, 520),
        ({"wording": "mod"}, "other", 1, 520),
        ({"wording": "new"}, "accuracy", 0, 520 - 52),
        ({"wording": "new"}, "failed", 52 / 520, 520),
        ({"wording": "org", "schema": 2}, "accuracy", 0.75, 104),
        # Both wrong about a ball, they agree on its own colour.
        ({"wording": "new"}, "agreement", 26 / 468, 468),
        ({"wording": "mod"}, "agreement", 0, 520),
        ({"wording": "negated"}, "accuracy", 234 / 260, 260),
    ):
        row = cells.row(measure, checkpoint="one", **place)
        assert (row["value"], row["n"]) == (pytest.approx(value), n), (place, measure)
