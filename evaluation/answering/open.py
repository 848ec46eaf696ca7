"""Opens answerers by name, and says in one place which kind of model can do what.

answerer = open_answerer("runs/.../best.ckpt", asking, need="types")

Only the code of the kind that is opened is imported.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from evaluation.answering.interface import (
    ANSWERS,
    LANGUAGE_MODELS,
    Ability,
    Answerer,
    Asking,
    ChoicePrompt,
    Compute,
)
from evaluation.report import source_record

log = logging.getLogger(__name__)


def open_answerer(path: str, asking: Asking, *, need: Ability = "spans") -> Answerer:
    """Who answers questions about a text: a checkpoint, a language model, or a file of answers.

    Args:
        path: `hf:PATH` or `openai:MODEL[@URL]` for a language model, `FILE.jsonl` for answers made elsewhere,
            anything else a checkpoint.
        asking: how it is asked.
        need: what the protocol will ask for.

    Raises:
        ValueError: nothing usable is there, or it cannot do what is needed.
    """
    answerer: Answerer
    if path.startswith(LANGUAGE_MODELS):
        from evaluation.answering.language_model import LanguageModel

        answerer = model = LanguageModel(path, asking)
        if path.startswith("openai:") and need == "subjects":
            model.model.require_likelihoods()
    elif path.endswith(ANSWERS):
        from evaluation.answering.predictions import Predictions

        answerer = Predictions(path)
    else:
        from evaluation.answering.checkpoint import QuestionCheckpoint

        answerer = QuestionCheckpoint(path, asking)
    if need not in answerer.can:
        raise answerer.lacks(need)
    return answerer


def open_chooser(
    path: str,
    compute: Compute,
    *,
    prompt: ChoicePrompt = "auto",
    likelihood: Literal["mean", "sum"] = "mean",
) -> Answerer:
    """Who chooses among choices: a checkpoint of multiple choice, a language model (of ours, local, behind an
    endpoint) by likelihood or by letter, or a file of scores (`FILE.jsonl`).

    Raises:
        ValueError: nothing usable is there, or it is an endpoint that does not tell likelihoods.
    """
    if path.startswith(LANGUAGE_MODELS) or is_decoder(path):
        from evaluation.answering.language_model import LanguageModel

        plain = Asking(device=compute.device, dtype=compute.dtype, batch_size=compute.batch_size)
        asking = compute if isinstance(compute, Asking) else plain
        model = LanguageModel(path, asking, choice_prompt=prompt, likelihood=likelihood)
        if path.startswith("openai:") and not model.orders:
            model.model.require_likelihoods()
        return model
    if path.endswith(ANSWERS):
        from evaluation.answering.predictions import ChoicePredictions

        return ChoicePredictions(path)
    from evaluation.answering.choice_checkpoint import ChoiceCheckpoint

    if not Path(path).is_file():
        log.warning("%s: was not fine-tuned for multiple choice; its head has random weights", path)
    return ChoiceCheckpoint(path, compute)


def chooses(path: str, prompt: ChoicePrompt = "auto") -> bool:
    """Whether a model gives choices scores (multiple choice, local language models, endpoints by letters),
    rather than answers."""
    if path.startswith(LANGUAGE_MODELS):
        return prompt == "letters" or not path.startswith("openai:")
    if not path.endswith(".ckpt"):
        return False
    from models.checkpoint import inspect

    return inspect(path).heads in ("choice", "causal")


def asking_record(named: Mapping[str, str], asking: Asking) -> dict[str, Any]:
    """For `about`: who was asked, and how; the prompt where there is a language model among them."""
    record = {
        "checkpoints": {name: source_record(path) for name, path in named.items()},
        "dtype": asking.dtype,
        "chat": asking.chat,
        "unknown_threshold": asking.unknown_threshold,
        "type_threshold": asking.type_threshold,
    }
    if not any(path.startswith(LANGUAGE_MODELS) for path in named.values()):
        return record
    from evaluation.answering.prompts import TURNS, WORDINGS

    settings = {name: getattr(asking, name) for name in ("max_new_tokens", "requests", "max_requests")}
    wording = WORDINGS[asking.prompt]._asdict()
    return record | {"prompt": {"style": asking.prompt, **wording, "turns": TURNS, **settings}}


def is_decoder(path: str) -> bool:
    """Whether a name is of a checkpoint of ours with a causal model."""
    from models.checkpoint import inspect

    return path.endswith(".ckpt") and inspect(path).heads == "causal"


def check_reads_prompts(path: str, flag: str) -> None:
    """ValueError unless a path names a decoder that reads data_modules/encoding/prompts.py: known before
    anything is loaded."""
    from data_modules.schema import DECODERS
    from models.checkpoint import inspect

    if path.startswith(LANGUAGE_MODELS):
        raise ValueError(f"{path}: {flag} is for decoders by folder, Hub name or .ckpt; leave out hf:")
    if (architecture := inspect(path).architecture) not in DECODERS:
        raise ValueError(f"{path}: {flag} is for decoders, and {architecture} is an encoder")


def advice_places(text: str | None) -> list[str]:
    """The places of `--advice-at`, in order; ValueError for one that there is not."""
    from data_modules.schema import AdviceAt

    places = list(dict.fromkeys(text.split(","))) if text is not None else []
    if unknown := set(places) - set(get_args(AdviceAt)):
        known = ", ".join(get_args(AdviceAt))
        raise ValueError(f"--advice-at: {min(unknown)!r} is none of {known} (commas between several)")
    return places
