"""The 130 stories and their questions."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from data_modules.tasks.predicate_argument import WORDINGS, predicate_argument_rows

ROWS = predicate_argument_rows()


def test_the_proposed_stimuli_row_for_row(shared: Path) -> None:
    path = shared / "oracle" / "semantic_faithfulness" / "predicate_argument_proposal.json"
    assert [asdict(row) for row in ROWS] == json.loads(path.read_text())


def test_130_stories_with_as_many_yes_as_no() -> None:
    assert len({row.story for row in ROWS}) == 130
    assert Counter(row.answer for row in ROWS) == {"yes": 260, "no": 260}


def test_a_question_alone_does_not_tell_its_answer() -> None:
    """Each wording of each question is asked of as many stories that answer yes as no."""
    for wording in WORDINGS:
        answers: dict[str, Counter[str]] = {}
        for row in ROWS:
            answers.setdefault(getattr(row, wording), Counter())[row.answer] += 1
        assert all(count["yes"] == count["no"] for count in answers.values())


def test_answers_are_those_of_the_story() -> None:
    for row in ROWS:
        colour, thing = row.mod.removeprefix("Was there a ").rstrip("?").split()
        assert (row.org, row.new) == (f"Was the {thing} {colour}?", f"Was the a {colour} {thing}?")
        assert {colour, thing} <= set(row.story.rstrip(".").split())
        assert (f"{colour} {thing}" in row.story) == (row.answer == "yes")
