"""The 130 stories and their questions."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from data_modules.tasks.predicate_argument import predicate_argument_rows

ROWS = predicate_argument_rows()


def test_predicate_argument_rows_are_the_proposed_stimuli(oracle: Path) -> None:
    path = oracle / "predicate_argument_proposal.json"
    assert [asdict(row) for row in ROWS] == json.loads(path.read_text())


def test_predicate_argument_rows_answer_by_the_story_and_ask_for_yes_as_often_as_for_no() -> None:
    asked = Counter((row.mod, row.answer) for row in ROWS)
    for row in ROWS:
        colour, thing = row.mod.removeprefix("Was there a ").rstrip("?").split()
        assert (f"{colour} {thing}" in row.story) == (row.answer == "yes")
        assert {colour, thing} <= set(row.story.rstrip(".").split())
        assert asked[row.mod, "yes"] == asked[row.mod, "no"]
