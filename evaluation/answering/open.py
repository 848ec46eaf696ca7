"""Opens answerers by name, and says in one place which kind of model can do what.

answerer = open_answerer("runs/.../best.ckpt", asking, need="types")

Only the code of the kind that is opened is imported.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, get_args

from evaluation.answering.interface import (
    LACKS,
    LANGUAGE_MODELS,
    Ability,
    Answerer,
    Asking,
    Choosing,
    Compute,
    Kind,
    kind_of,
)
from evaluation.report import source_record

log = logging.getLogger(__name__)

ABILITIES: dict[Kind, tuple[Ability, ...]] = {
    "file": ("spans", "types"),
    "endpoint": ("spans", "types", "subjects", "choices"),
    "local": ("spans", "types", "subjects", "choices"),
    "causal": ("spans", "types", "subjects", "choices", "states"),
    "encoder": ("spans", "subjects", "mentions", "choices", "embeddings", "states"),
    "span": ("spans", "subjects", "mentions", "states"),
    "rationale": ("spans", "types", "subjects", "mentions", "states"),
    "xlnet": ("spans", "types", "subjects", "mentions", "states"),
    "choice": ("choices", "embeddings"),
}
"""What each kind can be opened for."""


def open_answerer(path: str, asking: Compute, *, need: Ability = "spans") -> Answerer:
    """Who answers, by what it is: a checkpoint (a `.ckpt`, a folder or a Hub name), a language model, or a
    file of answers.

    A decoder answers questions and scores subjects in the prompts that it was trained with, and chooses as
    language models do, by likelihood.

    Args:
        path: `hf:PATH` or `openai:MODEL[@URL]` for a language model, `FILE.jsonl` for answers made elsewhere,
            anything else a checkpoint.
        asking: how it is asked; what a plain `Compute` or `Asking` does not say is as usual.
        need: what will be asked for.

    Raises:
        ValueError: nothing usable is there, or it cannot do what is needed.
    """
    kind = kind_of(path)
    if need not in ABILITIES[kind]:
        raise ValueError(f"{path}: {LACKS[need]}")
    how = asking if isinstance(asking, Choosing) else Choosing(**asdict(asking))
    if kind == "file":
        from evaluation.answering.predictions import Predictions

        return Predictions(path)
    if kind in ("endpoint", "local") or (kind == "causal" and need == "choices"):
        from evaluation.answering.language_model import LanguageModel

        model = LanguageModel(path, how)
        if kind == "endpoint" and (need == "subjects" or (need == "choices" and not model.by_letter)):
            model.model.require_likelihoods()
        return model
    if need in ("choices", "embeddings"):
        from evaluation.answering.choice_checkpoint import ChoiceCheckpoint

        if kind == "encoder" and need == "choices":
            log.warning("%s: was not fine-tuned for multiple choice; its head has random weights", path)
        return ChoiceCheckpoint(path, how)
    from evaluation.answering.checkpoint import QuestionCheckpoint

    return QuestionCheckpoint(path, how)


def asking_record(named: Mapping[str, str], asking: Asking) -> dict[str, Any]:  # until all are on the frame
    """For `about`: who was asked, and how; the prompt where there is a language model among them."""
    record = {
        "checkpoints": {name: source_record(path) for name, path in named.items()},
        "dtype": asking.dtype,
        "chat": asking.chat,
        "unknown_threshold": asking.unknown_threshold,
        "type_threshold": asking.type_threshold,
        "max_new_tokens": asking.max_new_tokens,
    }
    if not any(path.startswith(LANGUAGE_MODELS) for path in named.values()):
        return record
    from evaluation.answering.prompts import TURNS, WORDINGS

    wording = WORDINGS[asking.prompt]._asdict()
    return record | {"prompt": {"style": asking.prompt, **wording, "turns": TURNS}}


def check_reads_prompts(path: str, flag: str) -> None:  # until bias is without --advice-at
    """ValueError unless a path names a decoder that reads data_modules/encoding/prompts.py."""
    if kind_of(path) != "causal":
        raise ValueError(f"{path}: {flag} is for decoders by folder, Hub name or .ckpt")


def advice_places(text: str | None) -> list[str]:  # until bias is without --advice-at
    """The places of `--advice-at`, in order; ValueError for one that there is not."""
    from data_modules.schema import AdviceAt

    places = list(dict.fromkeys(text.split(","))) if text is not None else []
    if unknown := set(places) - set(get_args(AdviceAt)):
        known = ", ".join(get_args(AdviceAt))
        raise ValueError(f"--advice-at: {min(unknown)!r} is none of {known} (commas between several)")
    return places
