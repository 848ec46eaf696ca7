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
from interventune.data_modules.encoding.tokenizers import build_tokenizer
from interventune.data_modules.schema.questions import ChoiceQuestion
from interventune.data_modules.sources import read_choices
from interventune.data_modules.stories.questions import vocabulary
from interventune.evaluation.answering.interface import Choosing, open_answerer

System = Callable[[str, list[ChoiceQuestion]], list[float]]
"""Returns the log-likelihoods of all choices of some questions, with the model in a folder."""
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
        exact = lm_eval("float64", folder, questions)
        systems = {
            name: partial(answered, system, folder, exact) for name, system in SYSTEMS.items()
        }
        turns = [questions[:6], *[questions] * repeats]
        table = in_turns(f"likelihoods/{size}", "questions/s", systems, turns)
    if (table.query("system == 'interventune'")[APART] > 5e-4).any():
        raise ValueError("log-likelihoods differ from those of a float64 softmax by more than 5e-4")
    return table


def answered(
    system: System, folder: str, exact: list[float], questions: list[ChoiceQuestion]
) -> Turn:
    """Score the first questions, of which `exact` has all log-likelihoods; the rate counts input
    questions, so it is comparable between systems.
    """
    began = time.perf_counter()
    scores = system(folder, questions)
    rate = len(questions) / (time.perf_counter() - began)
    return Turn(rate, {APART: float(np.abs(np.subtract(scores, exact[: len(scores)])).max())})


def interventune(folder: str, questions: list[ChoiceQuestion]) -> list[float]:
    """Score with this project, as `evaluate confusion --choice-prompt question --likelihood sum`
    does; the first turn loads the model.
    """
    options = Choosing(choice_prompt="question", likelihood="sum")
    model = our_model(folder, options, need="choices")
    return [value for logit_C in model.choice_logits(questions) for value in logit_C.tolist()]


our_model = cache(open_answerer)


def lm_eval(softmax: str, folder: str, questions: list[ChoiceQuestion]) -> list[float]:
    """Score with lm-evaluation-harness; surrounding white space is stripped, as in this project."""
    instance = import_module("lm_eval.api.instance").Instance
    pairs = [
        (f"Question: {question.prompt.strip()}\nAnswer:", f" {choice.strip()}")
        for question in questions
        for choice in question.choices
    ]
    requests = [instance("loglikelihood", {}, pair, number) for number, pair in enumerate(pairs)]
    model = their_model(folder, softmax)
    return [value for value, _ in model.loglikelihood(requests, disable_tqdm=True)]


@cache
def their_model(folder: str, softmax: str) -> Any:
    """lm-eval's own model, in float32 except for the softmax, with batches of 8."""
    options = {"pretrained": folder, "device": "auto", "dtype": "float32", "batch_size": 8}
    return import_module("lm_eval.models.huggingface").HFLM(**options, softmax_dtype=softmax)


SYSTEMS: dict[str, System] = {
    "interventune": interventune,
    "lm-evaluation-harness": partial(lm_eval, "float32"),
}
