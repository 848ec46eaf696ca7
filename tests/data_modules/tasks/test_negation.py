"""Files of pairs, and the pairs that CondaQA's edits make."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from data_modules.schema import Turn
from data_modules.tasks.condaqa import read_pairs
from storage.errors import DataError

ROW: dict[str, Any] = {
    "id": "s1",
    "dataset": "coqa",
    "turn_id": 3,
    "history": [["Who came?", "Mara"]],
    "question": "Was she late?",
    "story_org": "Mara came late.",
    "story_mod": "Mara came early.",
    "answer_org": "yes",
    "answer_mod": "no",
}


def lines(path: Path, *rows: Any) -> Path:
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + "\n")
    return path


def condaqa(passage: int, question: str, edit: int, label: str, **more: Any) -> dict[str, Any]:
    texts = {"sentence1": f"Passage {passage}, version {edit}.", "sentence2": f"Question {question}?"}
    ids = {"PassageID": passage, "QuestionID": question, "PassageEditID": edit, "label": label}
    return {**ids, **texts, **more}


def test_read_pairs_gives_two_questions_a_pair(tmp_path: Path) -> None:
    (pair,) = read_pairs(lines(tmp_path / "p.jsonl", ROW)).pairs
    org, mod = pair.examples()
    assert (org.context, mod.context) == (ROW["story_org"], ROW["story_mod"])
    assert (org.answer_type, org.gold, mod.answer_type, mod.gold) == ("yes", ("yes",), "no", ("no",))
    assert org.question == mod.question == ROW["question"]
    assert org.history == mod.history == (Turn("Who came?", "Mara"),)
    assert (org.id, mod.id) == ("s1 3 org", "s1 3 mod")


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        ({"answer_mod": "yes"}, "answers must differ"),
        ({"answer_mod": "maybe"}, "answer_mod.*'maybe'"),
        ({"story_mod": ROW["story_org"]}, "two stories"),
        ({}, "second pair s1 with the turn_id 3"),
    ],
)
def test_read_pairs_names_line_and_field(tmp_path: Path, bad: dict[str, Any], named: str) -> None:
    with pytest.raises(DataError, match=f"pairs.jsonl, line 2.*{named}"):
        read_pairs(lines(tmp_path / "pairs.jsonl", ROW, ROW | bad))


def test_read_pairs_makes_pairs_of_condaqa_edits_that_turn_the_answer(tmp_path: Path) -> None:
    rows = [
        condaqa(1, "q10", 3, "NO"),  # before its original: order does not matter
        condaqa(1, "q10", 0, "YES"),
        condaqa(1, "q10", 1, "NO"),  # a paraphrase, whatever its label
        condaqa(1, "q10", 2, "YES"),  # unchanged
        condaqa(1, "q20", 0, "NO"),
        condaqa(1, "q20", 2, "YES"),
        condaqa(1, "q20", 3, "DON'T KNOW"),
        condaqa(2, "q10", 3, "NO"),  # no original
        condaqa(1, "q20", 2, "YES"),  # again
    ]
    found = read_pairs(lines(tmp_path / "c.jsonl", *rows))
    assert [(p.id, p.answer_org, p.answer_mod, p.edit) for p in found.pairs] == [
        ("1-q10-affirmative", "yes", "no", "affirmative"),
        ("1-q20-scope", "no", "yes", "scope"),
    ]
    assert found.pairs[0].story_org == "Passage 1, version 0."
    assert found.pairs[0].story_mod == "Passage 1, version 3."
    assert sum(found.left_out.values()) == 5
    assert found.left_out["paraphrases"] == 1


@pytest.mark.parametrize(
    ("row", "named"),
    [
        (condaqa(1, "q10", 7, "NO"), "line 2.*PassageEditID.*7"),
        (condaqa(1, "q10", 1, "NO"), "makes no pair.*paraphrases"),
    ],
)
def test_read_pairs_names_mistakes_in_condaqa(tmp_path: Path, row: dict[str, Any], named: str) -> None:
    with pytest.raises(DataError, match=named):
        read_pairs(lines(tmp_path / "c.jsonl", condaqa(1, "q10", 0, "YES"), row))


def test_read_pairs_agrees_with_a_plain_count_of_condaqa_dev(shared: Path) -> None:
    """No edited passage is lost."""
    path = shared / "data" / "condaqa" / "dev.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    by_place = {(r["PassageID"], r["QuestionID"], r["PassageEditID"]): r for r in rows}
    expected = Counter()
    for (passage, question, edit), row in by_place.items():
        original = by_place.get((passage, question, 0))
        if edit in (2, 3) and original and {original["label"], row["label"]} == {"YES", "NO"}:
            expected[edit] += 1
    found = read_pairs(path)
    assert Counter(pair.edit for pair in found.pairs) == {"scope": expected[2], "affirmative": expected[3]}
    assert len(found.pairs) == 323
    assert len(found.pairs) + sum(found.left_out.values()) == sum(r["PassageEditID"] != 0 for r in rows)
    assert len({pair.id for pair in found.pairs}) == len(found.pairs)
    texts = {(r["sentence1"], r["sentence2"]): r["label"].lower() for r in rows}
    for pair in found.pairs:
        assert texts[pair.story_org, pair.question] == pair.answer_org
        assert texts[pair.story_mod, pair.question] == pair.answer_mod
