"""Answers that were made elsewhere, as an answerer: a file in place of a model.

    interventune evaluate faithfulness --predictions gpt=answers.jsonl --data os.jsonl ts_r.jsonl --output DIR

JSON Lines, a row an answer:

    {"id": "3dr23u6we5exclen4th8uq9rb42tel_4", "variant": "ts_r", "answer": "the kitchen"}

`id` is that of the question. `variant` is that of its story (absent: `os`); in the probes which of several
questions it is: `org` or `mod` of a negated pair; the wording `org`, `mod` or `new` about a colour.

Of multiple choice a row has one number for each choice:

    {"prompt": "To open a jar,", "choices": ["twist its lid", "paint its lid"], "scores": [-3.1, -7.5]}

`scores` are logits or log-likelihoods, whose softmax is the confidence in each choice; `confidences`, as
examples.jsonl has them, are probabilities.

Shape letters: C choices.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NotRequired

import numpy as np
from pydantic import StrictInt
from typing_extensions import TypedDict

from data_modules.schema import VARIANTS, ChoiceQuestion, QAExample
from evaluation.answering.interface import Ability, Answer, Answerer
from storage.errors import DataError
from storage.files import file_digest
from storage.json_files import json_lines

log = logging.getLogger(__name__)

MISSING = "not among the predictions"


class _Row(TypedDict):
    id: str | StrictInt
    variant: NotRequired[str]
    answer: str
    prediction: NotRequired[object]
    """What examples.jsonl calls an answer; there `answer` is the right one."""


class Predictions(Answerer):
    """Answers by id and variant; a question without one counts as a failure.

    Args:
        path: the file.

    Raises:
        DataError: a row of another shape, two answers to one question, or no row.
    """

    can: frozenset[Ability] = frozenset({"spans", "types"})

    def __init__(self, path: str) -> None:
        self.path = path
        self.text_of: dict[tuple[str, str], str] = {}
        self.asked: set[tuple[str, str]] = set()
        for where, row in json_lines(path, _Row, expected="id, variant and answer"):
            name, variant = str(row["id"]), row.get("variant", "os")
            # The probes' questions are named after their wording.
            if "prediction" in row:
                raise DataError(f"{where}: has 'answer' and 'prediction'; keep what was said, as 'answer'")
            key = (name, variant) if variant in VARIANTS else (f"{name} {variant}", "os")
            if key in self.text_of:
                raise DataError(f"{where}: a second answer to {name!r} in variant {variant}; remove one")
            self.text_of[key] = row["answer"]

    def answers(self, examples: Sequence[QAExample], what: str = "answering") -> Iterator[Answer]:
        """The answer of every question, in their order."""
        for i, example in enumerate(examples):
            self.asked.add((example.id, example.variant))
            text = self.text_of.get((example.id, example.variant))
            yield Answer(i, "", MISSING) if text is None else Answer(i, text)

    @property
    def identity(self) -> dict[str, Any]:
        """The file's content."""
        return {"answers": file_digest(self.path)}

    def log_unmatched(self) -> None:
        """One line, of all questions so far."""
        missing = Counter(variant for _, variant in sorted(self.asked - self.text_of.keys()))
        unused = len(self.text_of.keys() - self.asked)
        parts = []
        if missing:
            which = ", ".join(f"{variant} {count}" for variant, count in missing.items())
            parts.append(f"{missing.total()} of {len(self.asked)} questions have no row ({which})")
        if unused:
            parts.append(f"{unused} of {len(self.text_of)} rows were not asked for")
        if parts:
            log.warning("%s: %s", self.path, "; ".join(parts))


class _ScoredRow(TypedDict):
    prompt: str
    choices: list[str]
    scores: NotRequired[list[float]]
    confidences: NotRequired[list[float]]


class ChoicePredictions(Answerer):
    """Scores by prompt and choices.

    Args:
        path: the file.

    Raises:
        DataError: a row of another shape, with another number of scores than choices, or with other scores
            than an earlier row of the same question; no row at all.
    """

    can: frozenset[Ability] = frozenset({"choices"})

    def __init__(self, path: str) -> None:
        self.path = path
        self.logits_of: dict[tuple[str, ...], np.ndarray] = {}
        for where, row in json_lines(path, _ScoredRow, expected="prompt, choices and scores"):
            name = "scores" if "scores" in row else "confidences"
            numbers = np.array(row.get(name, []), dtype=np.float64)
            good = np.isfinite(numbers).all() and (
                name == "scores" or ((numbers >= 0).all() and numbers.sum() > 0)
            )
            if len(numbers) != len(row["choices"]) or not good:
                raise DataError(
                    f"{where}: expected {len(row['choices'])} finite numbers as 'scores', or probabilities "
                    f"as 'confidences', one for each choice, found {row.get(name)!r:.60}"
                )
            with np.errstate(divide="ignore"):
                logit_C = numbers if name == "scores" else np.log(numbers)
            before_C = self.logits_of.setdefault((row["prompt"], *row["choices"]), logit_C)
            if not np.allclose(before_C, logit_C, rtol=1e-5, atol=1e-5):
                raise DataError(
                    f"{where}: other numbers than an earlier row of the same question; remove one"
                )

    @property
    def identity(self) -> dict[str, Any]:
        """The file's content."""
        return {"predictions": file_digest(self.path)}

    def choice_logits(self, questions: Sequence[ChoiceQuestion], what: str = "choosing") -> list[np.ndarray]:
        """The scores (C,) of every question's choices, float64, which may be -inf for a probability of 0.

        Raises:
            DataError: a question is not among the predictions.
        """
        keys = [(question.prompt, *question.choices) for question in questions]
        if missing := [i for i, key in enumerate(keys) if key not in self.logits_of]:
            question = questions[missing[0]]
            raise DataError(
                f"{self.path}: {what}: {len(missing)} of {len(keys)} questions are not among the "
                f"predictions, as {question.id}: {question.prompt!r:.40} {list(question.choices)!r:.80}"
            )
        return [self.logits_of[key] for key in keys]
