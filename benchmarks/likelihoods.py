"""Compare log-likelihoods of choices with lm-evaluation-harness."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache, partial
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
import torch

from benchmarks.side_by_side import Turn, in_turns, table
from interventune.data_modules.schema.questions import ChoiceQuestion
from interventune.data_modules.sources import read_choices
from interventune.evaluation.answering.interface import Answerer, Choosing
from interventune.evaluation.answering.open import open_answerer

Likelihoods = list[list[float]]
"""Log-likelihoods of the choices of each question."""
System = Callable[[str, list[ChoiceQuestion]], Likelihoods]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
APART = "largest difference from float64"


def measure(source: str, folder: str, *, repeats: int) -> pd.DataFrame:
    """Return questions per second, accuracy, and the largest difference from a float64 softmax.

    Raises:
        ValueError: a log-likelihood differs by more than 5e-4 from lm-eval's with a float64
            softmax.
    """
    asked = list(read_choices(source)[:300])
    exact = lm_eval(8, "float64", folder, asked)
    systems = {name: partial(answered, system) for name, system in SYSTEMS.items()}
    made = in_turns(systems, [(folder, asked[:6], exact[:6]), *[(folder, asked, exact)] * repeats])
    if any(turn.notes[APART] > 5e-4 for turn in made["interventune"]):
        raise ValueError("log-likelihoods differ from those of a float64 softmax by more than 5e-4")
    return table("likelihoods", "questions/s", made)


def answered(system: System, folder: str, asked: list[ChoiceQuestion], exact: Likelihoods) -> Turn:
    """Score the questions; the rate counts input questions, so it is comparable between systems."""
    began = time.perf_counter()
    found = system(folder, asked)
    rate = len(asked) / (time.perf_counter() - began)
    right = [
        row.index(max(row)) == question.label for row, question in zip(found, asked, strict=True)
    ]
    apart = float(np.abs(np.hstack(found) - np.hstack(exact)).max())
    return Turn(rate, {"questions": len(asked), "accuracy": sum(right) / len(right), APART: apart})


def interventune(folder: str, asked: list[ChoiceQuestion]) -> Likelihoods:
    """Score with this project; the first turn loads the model."""
    return [logit_C.tolist() for logit_C in our_model(folder).choice_logits(asked)]


@lru_cache(maxsize=1)
def our_model(folder: str) -> Answerer:
    """Load it as `evaluate confusion --choice-prompt question --likelihood sum` does."""
    how = Choosing(choice_prompt="question", likelihood="sum")
    return open_answerer(folder, how, need="choices")


def lm_eval(batch_size: int, softmax: str, folder: str, asked: list[ChoiceQuestion]) -> Likelihoods:
    """Score with lm-evaluation-harness; surrounding white space is stripped, as in this project."""
    instance = import_module("lm_eval.api.instance").Instance
    pairs = [
        (f"Question: {q.prompt.strip()}\nAnswer:", f" {c.strip()}")
        for q in asked
        for c in q.choices
    ]
    requests = [instance("loglikelihood", {}, pair, number) for number, pair in enumerate(pairs)]
    model = their_model(folder, batch_size, softmax)
    total = iter([value for value, _ in model.loglikelihood(requests, disable_tqdm=True)])
    return [[next(total) for _ in question.choices] for question in asked]


@lru_cache(maxsize=1)
def their_model(folder: str, batch_size: int, softmax: str) -> Any:
    """lm-eval's own model, in float32 except for the softmax."""
    options = {"pretrained": folder, "device": DEVICE, "dtype": "float32", "batch_size": batch_size}
    return import_module("lm_eval.models.huggingface").HFLM(**options, softmax_dtype=softmax)


SYSTEMS: dict[str, System] = {
    "interventune": interventune,
    "lm-evaluation-harness, batches of 1": partial(lm_eval, 1, "float32"),
    "lm-evaluation-harness, batches of 8": partial(lm_eval, 8, "float32"),
}
