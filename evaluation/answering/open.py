"""Opens answerers by name, and defines what each kind of model can do.

answerer = open_answerer("runs/.../best.ckpt", asking, need="types")

Only the code of the opened kind is imported.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from interventune.evaluation.answering.asking import Asking, Compute
from interventune.evaluation.answering.interface import Ability, Answerer, Choosing, Kind, kind_of

if TYPE_CHECKING:
    from interventune.evaluation.answering.checkpoint import QuestionCheckpoint

log = logging.getLogger(__name__)
T = TypeVar("T")

ABILITIES: dict[Kind, tuple[Ability, ...]] = {
    "file": ("spans", "types"),
    "endpoint": ("spans", "types", "choices"),
    "seq2seq": ("spans", "types", "subjects", "choices"),
    "causal": ("spans", "types", "subjects", "choices", "states"),
    "encoder": ("spans", "subjects", "mentions", "choices", "embeddings", "states"),
    "span": ("spans", "subjects", "mentions", "states"),
    "rationale": ("spans", "types", "subjects", "mentions", "states"),
    "xlnet": ("spans", "types", "subjects", "mentions", "states"),
    "choice": ("choices", "embeddings"),
}
"""Abilities of each kind."""
WHO = (
    "answers in a file;an endpoint;a sequence-to-sequence model;an encoder;a span QA model;"
    "a QA model with yes and no;XLNet with yes and no;a multiple-choice model;a decoder"
)
KINDS = dict(zip(get_args(Kind), WHO.split(";"), strict=True))
DO = (
    "answer questions;answer yes and no;score two people;score spans;choose;embed texts;"
    "show hidden states"
)
CAN = dict(zip(get_args(Ability), DO.split(";"), strict=True))


def open_answerer(path: str, asking: Compute, *, need: Ability = "spans") -> Answerer:
    """Open an answerer by its kind. A decoder is asked in the same way whether it is a `.ckpt`, a
    folder or a Hub name, with or without `hf:`.

    Args:
        path: `hf:PATH` or `openai:MODEL[@URL]` for a language model, `FILE.jsonl` for external
            answers, anything else a checkpoint (a `.ckpt`, a folder or a Hub name).
        asking: how it is queried; fields missing from a plain `Compute` or `Asking` have their
            defaults.
        need: the required ability.

    Raises:
        ValueError: nothing usable is found, or it lacks the ability.
    """
    kind = kind_of(path)
    if need not in ABILITIES[kind]:
        able = ", ".join(
            KINDS[other] for other, abilities in ABILITIES.items() if need in abilities
        )
        raise ValueError(f"{path}: {KINDS[kind]} cannot {CAN[need]}; what can: {able}")
    how = asking if isinstance(asking, Choosing) else Choosing(**asdict(asking))
    if kind == "file":
        from interventune.evaluation.answering.predictions import Predictions

        return Predictions(path)
    if kind in ("endpoint", "seq2seq", "causal"):
        from interventune.evaluation.answering.language_model import Decoder, LanguageModel

        if kind == "causal":
            # bfloat16 keeps three digits of a state.
            precise = need == "states" and how.dtype == "auto"
            return Decoder(path, replace(how, dtype="float32") if precise else how)
        model = LanguageModel(path, how)
        if kind == "endpoint" and need == "choices" and not model.by_letter:
            raise ValueError(
                f"{path}: an endpoint chooses by letter alone; add --choice-prompt letters"
            )
        return model
    if need in ("choices", "embeddings"):
        if kind == "encoder" and need == "choices":
            log.warning(
                "%s: was not fine-tuned for multiple choice; its head has random weights", path
            )
        from interventune.evaluation.answering.choice_checkpoint import ChoiceCheckpoint

        return ChoiceCheckpoint(path, how)
    from interventune.evaluation.answering.checkpoint import QuestionCheckpoint

    return QuestionCheckpoint(path, how)


@contextmanager
def lent(model: Any, tokenizer: Any, asking: Asking) -> Iterator[QuestionCheckpoint]:
    """Wrap a transformers model in training, causal or with span answers, as the answerer that its
    saved folder would be. Within the context, it is in evaluation mode and the precision of its
    weights; afterwards, it and the random state are restored. ValueError for another kind of model
    or tokenizer, or if they do not fit.
    """
    import torch

    from interventune.data_modules.encoding.tokenizers import usable
    from interventune.evaluation.answering.checkpoint import QuestionCheckpoint
    from interventune.evaluation.answering.language_model import Decoder
    from interventune.models.loading import from_pretrained

    name, head = model.name_or_path or type(model).__name__, model.get_output_embeddings()
    layer, devices = type(head), [model.device] if model.device.type == "cuda" else []
    with torch.random.fork_rng(devices), unchanged(model):
        try:
            if hasattr(model, "_original_forward"):  # accelerate's wrapper for mixed precision
                model.__dict__.pop("forward", None)
            own = from_pretrained(model.eval(), name)
            held = own, usable(tokenizer, name, own.architecture), dict[str, Any]()
            how = Choosing(**asdict(asking))
            yield (Decoder if own.heads == "causal" else QuestionCheckpoint)(name, how, held)
        finally:
            if head is not None:
                head.__class__ = layer  # a causal model computes it in float32


@contextmanager
def unchanged(model: Any) -> Iterator[None]:
    """After this context, all modules have the attributes, buffers and hooks that they
    had before.
    """
    own = [vars(part) for part in model.modules()]
    held = [value for values in own for value in values.values() if isinstance(value, dict)]
    before = [(values, values.copy()) for values in (*own, *held)]
    try:
        yield
    finally:
        for values, earlier in before:
            values.clear()
            values.update(earlier)


def ask_each(
    ask: Callable[[str, Any], T],
    named: Mapping[str, str],
    asking: Compute,
    *,
    need: Ability,
    opened: Callable[[str], Any] | None = None,
) -> tuple[dict[str, T], dict[str, Any]]:
    """Collect the result of `ask` for each source, by name; and the `about` of an evaluation, with
    the answerers' identities.

    Args:
        ask: gets the name and the answerer, which it must not store: a model is freed before the
            next one.
        named, asking, need, opened: as for `Protocol.run`.
    """
    identities: dict[str, Any] = {}

    def asked(name: str, path: str) -> T:
        answerer: Any = opened(path) if opened else open_answerer(path, asking, need=need)
        found = ask(name, answerer)
        if identity := getattr(answerer, "identity", None):
            identities[name] = identity
        return found

    found = {name: asked(name, path) for name, path in named.items()}
    return found, {"identities": identities} if identities else {}
