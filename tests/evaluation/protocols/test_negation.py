"""`python -m evaluation negation`: shares against pairs counted by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from data_modules.schema import QAExample
from tests.evaluation.checkpoints import evaluate
from tests.evaluation.fake_answerer import install, right

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


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.jsonl"
    rows = [
        {"id": name, "dataset": "coqa" if name in "ab" else "hotpotqa", "edit": edit}
        | {"question": "Was it?", "history": [["Who?", "Tom"]]}
        | {"story_org": f"{name} org", "story_mod": f"{name} mod", "answer_org": org, "answer_mod": mod}
        for name, (org, mod, edit, *_) in PAIRS.items()
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_shares_match_pairs_counted_by_hand(
    pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fakes = install(monkeypatch, {"one": answer_of, "best": right, "spans": lambda _: "the red car"})
    cells = evaluate(tmp_path / "r", "negation", "--pairs", pairs, "--checkpoint", "one", "best", "spans")
    expected = {"comb": 1 / 4, "org": 2 / 4, "mod": 2 / 4, "yes": 5 / 8, "no": 1 / 8, "other": 2 / 8}
    for measure, value in expected.items():
        row = cells.row(measure, checkpoint="one")
        assert (row["value"], row["n"]) == (pytest.approx(value), 4)
    assert (cells("failed", checkpoint="one"), cells.n("failed", checkpoint="one")) == (1 / 5, 5)
    edits = [cells.n("comb", checkpoint="one", edit=name) for name in ("scope", "affirmative", "other")]
    assert edits == [2, 1, 1]
    assert cells("comb", checkpoint="one", data="coqa") == 0.5
    assert [cells(measure, checkpoint="best") for measure in ("comb", "org", "mod")] == [1, 1, 1]
    assert {turn.answer for example in fakes["one"].asked for turn in example.history} == {"Tom"}
    assert "spans: 0 of 5 predictions are yes or no" in (tmp_path / "r" / "report.md").read_text()


def test_condaqa_makes_323_pairs(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, {"one": right})
    data = shared / "data" / "condaqa" / "dev.jsonl"
    cells = evaluate(tmp_path / "r", "negation", "--pairs", data, "--checkpoint", "one")
    assert (cells("comb", checkpoint="one"), cells.n("comb", checkpoint="one")) == (1, 323)
    assert sum(cells.n("comb", checkpoint="one", edit=edit) for edit in ("scope", "affirmative")) == 323
    assert "282 paraphrases" in (tmp_path / "r" / "report.md").read_text()
