"""data_modules/negation: files of pairs, and the pairs that CondaQA's edits make."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from data_modules.__main__ import main
from data_modules.schema import Turn
from data_modules.tasks.condaqa import ContrastPair, read_condaqa, read_pairs, write_pairs
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


def test_a_pair_is_two_questions(tmp_path: Path) -> None:
    (pair,) = read_pairs(lines(tmp_path / "p.jsonl", ROW)).pairs
    org, mod = pair.examples()
    assert (org.context, mod.context) == (ROW["story_org"], ROW["story_mod"])
    assert (org.answer_type, org.gold, mod.answer_type, mod.gold) == ("yes", ("yes",), "no", ("no",))
    assert org.question == mod.question == ROW["question"]
    assert org.history == mod.history == (Turn("Who came?", "Mara"),)
    assert org.id != mod.id


def test_what_may_be_absent_and_how_answers_may_be_written(tmp_path: Path) -> None:
    row = {key: value for key, value in ROW.items() if key not in ("dataset", "turn_id", "history")}
    (pair,) = read_pairs(
        lines(tmp_path / "p.jsonl", "", row | {"answer_org": "No.", "answer_mod": " YES"})
    ).pairs
    assert (pair.answer_org, pair.answer_mod, pair.history, pair.turn_id) == ("no", "yes", (), None)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"answer_mod": "yes"}, ("answer_org", "both yes")),
        ({"answer_mod": "maybe"}, ("answer_mod", "'maybe'")),
        ({"story_mod": ROW["story_org"]}, ("story_mod", "same")),
        ({}, ("second pair", "s1, turn 3")),
    ],
)
def test_a_mistake_names_file_line_and_field(tmp_path: Path, bad: Any, words: tuple[str, ...]) -> None:
    second = ROW | bad if isinstance(bad, dict) else bad
    path = lines(tmp_path / "pairs.jsonl", ROW | {"turn_id": 3}, second)
    with pytest.raises(DataError) as error:
        read_pairs(path)
    assert str(error.value).startswith(f"{path}, line 2")
    for word in words:
        assert word in str(error.value)


def test_edits_with_the_opposite_answer_make_pairs_but_paraphrases_never(tmp_path: Path) -> None:
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
    ("row", "words"),
    [
        (condaqa(1, "q10", 7, "NO"), ("line 2", "PassageEditID", "7")),
        (condaqa(1, "q10", 2, "NO", sentence1=""), ("line 2", "sentence1", "empty")),
        (condaqa(1, "q10", 1, "NO"), ("makes no pair", "1 paraphrases")),
    ],
)
def test_mistakes_in_condaqa(tmp_path: Path, row: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(DataError) as error:
        read_condaqa(lines(tmp_path / "c.jsonl", condaqa(1, "q10", 0, "YES"), row))
    for word in words:
        assert word in str(error.value)


def test_the_command_writes_pairs_that_read_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = lines(tmp_path / "c.jsonl", condaqa(1, "q10", 0, "YES"), condaqa(1, "q10", 3, "NO"))
    output = tmp_path / "pairs.jsonl"
    arguments = ["condaqa", "--input", str(source), "--output", str(output)]
    assert main(arguments) == 0
    assert "1 pairs (0 scope, 1 affirmative)" in capsys.readouterr().out
    assert read_pairs(output).pairs == read_pairs(source).pairs
    assert main(arguments) == 2  # never overwrites by itself
    assert main(["condaqa", "--input", str(output), "--output", str(tmp_path / "x")]) == 2
    assert "PassageID" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_pairs_are_written_and_read_unchanged(tmp_path: Path) -> None:
    pairs = [
        ContrastPair(
            id="ä",
            dataset="coqa",
            turn_id=0,
            history=(Turn("a", "b"),),
            question='Q "x"?',
            story_org="A\nB",
            story_mod="C",
            answer_org="no",
            answer_mod="yes",
            edit="scope",
        ),
        ContrastPair(id="b", question="Q?", story_org="A", story_mod="C", answer_org="yes", answer_mod="no"),
    ]
    assert write_pairs(pairs, tmp_path / "p.jsonl") == 2
    assert read_pairs(tmp_path / "p.jsonl").pairs == pairs


def test_all_of_condaqa_dev(shared: Path) -> None:
    """Against a plain count of opposite labels; no edited passage is lost."""
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
    assert len({pair.key for pair in found.pairs}) == len(found.pairs)
    texts = {(r["sentence1"], r["sentence2"]): r["label"].lower() for r in rows}
    for pair in found.pairs:
        assert texts[pair.story_org, pair.question] == pair.answer_org
        assert texts[pair.story_mod, pair.question] == pair.answer_mod
