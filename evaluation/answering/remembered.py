"""Logits of choices, remembered a chunk of questions at a time (`storage.finished_work`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from data_modules.schema import ChoiceQuestion
from evaluation.answering.interface import Answerer
from storage.finished_work import FinishedWork, work_key

CHUNK = 256
"""Questions whose logits are kept at once: what an interruption costs at most."""


def remembered_logits(
    answerer: Answerer, questions: Sequence[ChoiceQuestion], work: FinishedWork, what: str
) -> np.ndarray:
    """Logits (N, C) of questions with equally many choices, from finished work where they are there; of who
    sees them in every order (N, C, C).

    Args:
        answerer: who chooses.
        questions: N of them.
        work: keeps the logits.
        what: names the progress bar.

    Raises:
        ValueError: the model gives no finite number.
    """
    rows: list[Any] = []
    chunks = range(0, len(questions), CHUNK)
    for number, start in enumerate(chunks, 1):
        part = questions[start : start + CHUNK]
        texts = [[question.prompt, *question.choices] for question in part]
        key = work_key(what="logits", model=answerer.identity, questions=texts)
        if not (record := work.get(key)):
            name = f"{what} ({number} of {len(chunks)})" if len(chunks) > 1 else what
            logits = [np.asarray(logit_C, dtype=np.float32) for logit_C in answerer.choice_logits(part, name)]
            for question, logit_C in zip(part, logits, strict=True):
                if not np.isfinite(logit_C).all():
                    raise ValueError(
                        f"{answerer.path}: gives question {question.id} a logit that is no finite number; "
                        "choose another checkpoint, or --dtype float32"
                    )
            record = work.add(key, logits=[logit_C.tolist() for logit_C in logits])
        shape = [len(part[0].choices)] * (2 if answerer.orders else 1)
        rows += work.array(record, "logits", len(part), *shape).tolist()
    return np.array(rows)
