"""The 130 stories and their questions."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from data_modules.tasks.predicate_argument import WORDINGS, predicate_argument_rows

ROWS = predicate_argument_rows()


def test_predicate_argument_rows_are_the_proposed_stimuli(shared: Path) -> None:
    path = shared / "oracle" / "semantic_faithfulness" / "predicate_argument_proposal.json"
    assert [asdict(row) for row in ROWS] == json.loads(path.read_text())


def test_predicate_argument_rows_ask_each_question_for_yes_as_often_as_for_no() -> None:
    """Each wording of each question is asked of as many stories that answer yes as no."""
    for wording in WORDINGS:
        answers: dict[str, Counter[str]] = {}
        for row in ROWS:
            answers.setdefault(getattr(row, wording), Counter())[row.answer] += 1
        assert all(count["yes"] == count["no"] for count in answers.values())


def test_predicate_argument_rows_answer_by_the_story() -> None:
    for row in ROWS:
        colour, thing = row.mod.removeprefix("Was there a ").rstrip("?").split()
        assert (row.org, row.new) == (f"Was the {thing} {colour}?", f"Was the a {colour} {thing}?")
        assert {colour, thing} <= set(row.story.rstrip(".").split())
        assert (f"{colour} {thing}" in row.story) == (row.answer == "yes")
