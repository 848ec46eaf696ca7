"""Compare log-likelihoods of choices with lm-evaluation-harness."""

import tempfile
import time
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
from transformers import AutoConfig, AutoModelForCausalLM

from benchmarks.side_by_side import SHAPES, Size, Turn, in_turns
from interventune.data_modules.schema.questions import ChoiceQuestion
from interventune.data_modules.sources import read_choices
from interventune.data_modules.stories.questions import vocabulary
from interventune.data_modules.stories.word_tokenizer import build_tokenizer
from interventune.evaluation.answering.interface import Answerer, Choosing, open_answerer

Likelihoods = list[list[float]]
"""Log-likelihoods of the choices of each question."""
System = Callable[[str, list[ChoiceQuestion]], Likelihoods]
APART = "largest difference from float64"


def measure(size: Size, *, repeats: int) -> pd.DataFrame:
    """Return questions per second of a decoder with random weights, and the largest difference from
    a float64 softmax.

    Raises:
        ValueError: a log-likelihood differs by more than 5e-4 from lm-eval's with a float64
            softmax.
    """
    questions = read_choices("stories:choices_dev")
    shape = SHAPES["decoder"][size]
    with tempfile.TemporaryDirectory() as folder:
        words = (*vocabulary(), "question", "answer", ":")
        build_tokenizer(shape.architecture, words).save_pretrained(folder)
        config = AutoConfig.for_model(shape.architecture, **shape.config)
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
        exact = lm_eval(8, "float64", folder, questions)
        systems = {name: partial(answered, system, folder) for name, system in SYSTEMS.items()}
        turns = [(questions[:6], exact[:6]), *[(questions, exact)] * repeats]
        table = in_turns(f"likelihoods/{size}", "questions/s", systems, turns)
    if (table.query("system == 'interventune'")[APART] > 5e-4).any():
        raise ValueError("log-likelihoods differ from those of a float64 softmax by more than 5e-4")
    return table


def answered(
    system: System, folder: str, questions: list[ChoiceQuestion], exact: Likelihoods
) -> Turn:
    """Score the questions; the rate counts input questions, so it is comparable between systems."""
    began = time.perf_counter()
    scores = system(folder, questions)
    rate = len(questions) / (time.perf_counter() - began)
    return Turn(rate, {APART: float(np.abs(np.hstack(scores) - np.hstack(exact)).max())})


def interventune(folder: str, questions: list[ChoiceQuestion]) -> Likelihoods:
    """Score with this project; the first turn loads the model."""
    return [logit_C.tolist() for logit_C in our_model(folder).choice_logits(questions)]


@cache
def our_model(folder: str) -> Answerer:
    """Load it as `evaluate confusion --choice-prompt question --likelihood sum` does."""
    options = Choosing(choice_prompt="question", likelihood="sum")
    return open_answerer(folder, options, need="choices")


def lm_eval(
    batch_size: int, softmax: str, folder: str, questions: list[ChoiceQuestion]
) -> Likelihoods:
    """Score with lm-evaluation-harness; surrounding white space is stripped, as in this project."""
    instance = import_module("lm_eval.api.instance").Instance
    pairs = [
        (f"Question: {question.prompt.strip()}\nAnswer:", f" {choice.strip()}")
        for question in questions
        for choice in question.choices
    ]
    requests = [instance("loglikelihood", {}, pair, number) for number, pair in enumerate(pairs)]
    model = their_model(folder, batch_size, softmax)
    total = iter([value for value, _ in model.loglikelihood(requests, disable_tqdm=True)])
    return [[next(total) for _ in question.choices] for question in questions]


@cache
def their_model(folder: str, batch_size: int, softmax: str) -> Any:
    """lm-eval's own model, in float32 except for the softmax."""
    options = {"pretrained": folder, "device": "auto", "dtype": "float32", "batch_size": batch_size}
    return import_module("lm_eval.models.huggingface").HFLM(**options, softmax_dtype=softmax)


SYSTEMS: dict[str, System] = {
    "interventune": interventune,
    "lm-evaluation-harness, batches of 1": partial(lm_eval, 1, "float32"),
    "lm-evaluation-harness, batches of 8": partial(lm_eval, 8, "float32"),
}
