"""What the two probes of yes/no questions share: asking, and what is said and right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from data_modules.schema import QAExample
    from evaluation.answering.interface import Answer, Asking

ANSWER_SHARES = {"yes": "yes", "no": "no", "other": "other"}
"""Measures of what is said, right or wrong."""


def ask_all(path: str, asking: Asking, examples: Sequence[QAExample], what: str) -> list[Answer]:
    """The answers to all questions, in their order.

    Raises:
        ValueError: the model cannot be opened, or names spans only.
    """
    from evaluation.answering.open import open_answerer

    answerer = open_answerer(path, asking, need="types")
    answers = sorted(answerer.answers(examples, what), key=lambda answer: answer.example)
    answerer.log_unmatched()
    return answers


def measured(prediction: str, answer: str) -> dict[str, bool]:
    """Whether a prediction is right, and what it says; other than yes and no is wrong."""
    from metrics.answers import yes_or_no

    word = yes_or_no(prediction)
    return {"accuracy": word == answer, "yes": word == "yes", "no": word == "no", "other": not word}


def untrained(rows: Iterable[Mapping[str, Any]], names: Iterable[str]) -> dict[str, str]:
    """By name, a sentence on each of whom no answer is yes or no: zeros that mean nothing else.

    Args:
        rows: of all questions, with `checkpoint`, and `other` (see `measured`) where there is an answer.
        names: who was asked.
    """
    rows, found = list(rows), {}
    for name in names:
        others = [row["other"] for row in rows if row["checkpoint"] == name and "other" in row]
        if others and all(others):
            found[name] = (
                f"{name}: 0 of {len(others)} predictions were yes or no: this model was not trained on such "
                "questions"
            )
    return found
