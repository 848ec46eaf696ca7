"""What the two probes of yes/no questions share: what is said and right, and a note on untrained models."""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import replace

from evaluation.report import Evaluation

log = logging.getLogger(__name__)

ANSWER_SHARES = {"yes": "says yes", "no": "says no", "other": "says other"}
"""Measures of what is said, right or wrong."""


def measured(prediction: str, answer: str) -> dict[str, bool]:
    """Whether a prediction is right, and what it says; other than yes and no is wrong."""
    from metrics.answers import yes_or_no

    word = yes_or_no(prediction)
    return {"accuracy": word == answer, "yes": word == "yes", "no": word == "no", "other": not word}


def with_untrained_note(evaluation: Evaluation) -> Evaluation:
    """The evaluation with a note, logged too, on each checkpoint of whom no answer is yes or no: its zeros
    mean nothing else."""
    others = defaultdict(list)
    for row in evaluation.examples:
        if "failure" not in row:
            others[row["checkpoint"]].append(row["other"])
    notes = [
        f"{name}: 0 of {len(shares)} predictions are yes or no; this model was not trained on such questions."
        for name, shares in others.items()
        if min(shares) == 1
    ]
    for note in notes:
        log.warning("%s", note)
    return replace(evaluation, notes=[*evaluation.notes, *notes])
