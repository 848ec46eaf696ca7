"""The 130 stories and their questions."""

from __future__ import annotations

import json
from pathlib import Path

from data_modules.tasks.predicate_argument import WORDINGS, predicate_argument_questions


def test_predicate_argument_questions_are_the_proposed_stimuli(oracle: Path) -> None:
    rows = json.loads((oracle / "predicate_argument_proposal.json").read_text())
    proposed = [(row["schema"], row["story"], row[name], row["answer"]) for row in rows for name in WORDINGS]
    found = [(n, x.context, x.question, *x.references) for n, _, x in predicate_argument_questions()]
    assert found == proposed
