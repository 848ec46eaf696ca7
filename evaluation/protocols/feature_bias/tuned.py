"""The feature-bias question asked of fine-tuned classifiers: which one did they learn?

A checkpoint of the experiment `multiple_choice`, trained on rows of `python -m data_modules
feature-bias-rows`, chooses between two label words. Nothing is calibrated.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import softmax

from data_modules.tasks.feature_bias import AGREEING, CELLS, FeatureTask, TaskExample, choice_rows
from evaluation.protocols.feature_bias.results import FINE_TUNED
from evaluation.protocols.feature_bias.runs import text_row
from storage.finished_work import FinishedWork, work_key

if TYPE_CHECKING:
    from evaluation.protocols.feature_bias.command import Tuned

CHUNK = 256
"""Texts that are kept at once."""


def tuned_rows(
    name: str,
    checkpoints: Sequence[Tuned],
    tasks: Mapping[str, FeatureTask],
    work: FinishedWork,
    args: argparse.Namespace,
) -> list[dict[str, Any]]:
    """The rows of the checkpoints of one name; those of one task are seeds.

    Raises:
        ValueError: a checkpoint cannot be used.
    """
    from evaluation.answering.checkpoint import ChoiceCheckpoint
    from evaluation.answering.interface import Compute

    rows = []
    seeds: Counter[str] = Counter()
    for path, only in checkpoints:
        predictor = ChoiceCheckpoint(
            path, Compute(device=args.device, precision=args.precision, batch_size=args.batch_size)
        )
        for task in tasks.values() if not only else [tasks[only]]:
            seed = seeds[task.name]
            seeds[task.name] += 1
            cells = [cell for cell in CELLS if not (args.no_agreement and cell in AGREEING)]
            texts = [x for cell in cells for x in task.tests[cell][: args.limit]]
            for x, logit_L in zip(texts, logits(predictor, task, texts, work, args), strict=True):
                row = text_row(name, FINE_TUNED, task.name, x, seed)
                row |= {"intervention": "none", "steer": "", "checkpoint": path}
                label = int(np.argmax(logit_L))
                row |= {"probabilities": softmax(logit_L).tolist(), "uncalibrated": label, "predicted": label}
                rows.append(row)
    return rows


def logits(
    predictor: Any,
    task: FeatureTask,
    texts: Sequence[TaskExample],
    work: FinishedWork,
    args: argparse.Namespace,
) -> list[list[float]]:
    """The logits of the two label words for every text."""
    found: list[list[float]] = []
    for start in range(0, len(texts), CHUNK):
        chunk = texts[start : start + CHUNK]
        key = work_key(
            protocol="feature-bias",
            model=predictor.identity,
            words=args.words,
            texts=[x.question for x in chunk],
        )
        record = work.get(key)
        if record is None:
            rows = choice_rows(task, chunk, (args.words[0], args.words[1]))
            told = predictor.choice_logits(rows, f"{task.name}, {start + len(chunk)} of {len(texts)}")
            if not np.isfinite(told).all():
                raise ValueError(f"{predictor.path}: gives logits that are no numbers; its training diverged")
            record = work.add(key, logits=[[float(x) for x in row] for row in told])
        found += work.array(record, "logits", len(chunk), 2).tolist()
    return found
