"""Log-likelihoods of choices beside lm-evaluation-harness (pip install lm-eval==0.4.13)."""

from __future__ import annotations

import time
from functools import lru_cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.side_by_side import Turn, in_turns, table
from data_modules.schema import ChoiceQuestion
from data_modules.sources import read_choices
from evaluation.answering.interface import Choosing
from evaluation.answering.language_model import LanguageModel


def measure(source: str, folder: str, *, repeats: int, size: int = 300) -> str:
    """A table of questions a second, accuracy, and the largest difference from a float64 softmax.

    Raises:
        ValueError: a log-likelihood of ours differs from lm-eval's with a float64 softmax by more than 1e-4,
            and a millionth of itself.
    """
    if find_spec("lm_eval") is None or not folder:
        return "likelihoods: skipped, needs --model and lm_eval (pip install lm-eval==0.4.13)"
    systems = {"interventune": interventune} | {
        f"lm-evaluation-harness, batches of {rows}": partial(lm_eval, rows, "") for rows in (1, 8)
    }
    # White space around texts is taken away, as we do.
    asked = [
        ChoiceQuestion(q.id, q.prompt.strip(), tuple(map(str.strip, q.choices)), q.label)
        for q in read_choices(source)[:size]
    ]
    made = in_turns(systems, [(folder, asked[:6]), *[(folder, asked)] * repeats])
    exact = lm_eval(8, "float64", folder, asked).found
    for name, turns in made.items():
        for at, turn in enumerate(turns):
            if name == "interventune" and not np.allclose(turn.found, exact, 1e-6, 1e-4):
                raise ValueError("log-likelihoods differ from those of a float64 softmax")
            apart = float(np.abs(np.subtract(turn.found, exact)).max())
            right = [row.index(max(row)) == q.label for row, q in zip(turn.found, asked, strict=True)]
            notes = {"questions": len(asked), "accuracy": sum(right) / len(right)}
            turns[at] = turn._replace(notes=notes | {"largest difference from float64": apart})
    return table("likelihoods", "questions/s", made)


@lru_cache(maxsize=1)
def our_model(folder: str) -> LanguageModel:
    """As `evaluate confusion --prompt question --likelihood sum` opens it."""
    return LanguageModel(f"hf:{folder}", Choosing(device="cpu", choice_prompt="question", likelihood="sum"))


def interventune(folder: str, asked: list[ChoiceQuestion]) -> Turn:
    """From questions to log-likelihoods."""
    model, began = our_model(folder), time.perf_counter()
    found = [logit_C.tolist() for logit_C in model.choice_logits(asked)]
    return Turn(len(asked) / (time.perf_counter() - began), {}, found)


@lru_cache(maxsize=1)
def their_model(folder: str, batch_size: int, softmax: str) -> Any:
    """lm-eval's own model, in float32."""
    options = {"pretrained": folder, "device": "cpu", "dtype": "float32", "batch_size": batch_size}
    return import_module("lm_eval.models.huggingface").HFLM(**options, softmax_dtype=softmax or None)


def lm_eval(batch_size: int, softmax: str, folder: str, asked: list[ChoiceQuestion]) -> Turn:
    """From questions to log-likelihoods; its rate counts the questions that were asked, as ours."""
    instance, model = import_module("lm_eval.api.instance").Instance, their_model(folder, batch_size, softmax)
    rows = [(f"Question: {q.prompt}\nAnswer:", f" {choice}") for q in asked for choice in q.choices]
    requests = [instance("loglikelihood", {}, row, number) for number, row in enumerate(rows)]
    began = time.perf_counter()
    total = iter([value for value, _ in model.loglikelihood(requests, disable_tqdm=True)])
    seconds = time.perf_counter() - began
    return Turn(len(asked) / seconds, {}, [[next(total) for _ in q.choices] for q in asked])
