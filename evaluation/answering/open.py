"""Opens answerers by name, and defines what each kind of model can do.

answerer = open_answerer("runs/.../best.ckpt", asking, need="types")

Only the code of the opened kind is imported.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from .asking import Compute
from .interface import Ability, Answerer, Choosing, kind_of

log = logging.getLogger(__name__)
T = TypeVar("T")

ABILITIES: dict[Ability, str] = {
    "spans": "answer questions",
    "types": "answer yes and no",
    "subjects": "score two people",
    "mentions": "score spans",
    "choices": "choose",
    "embeddings": "embed texts",
    "states": "show hidden states",
}
"""Abilities, as messages name them."""


class Kind(NamedTuple):
    """A kind of answerer: its name in messages, and its abilities."""

    name: str
    abilities: tuple[Ability, ...]


KINDS = {
    "file": Kind("answers in a file", ("spans", "types")),
    "endpoint": Kind("an endpoint", ("spans", "types", "choices")),
    "seq2seq": Kind("a sequence-to-sequence model", ("spans", "types", "subjects", "choices")),
    "causal": Kind("a decoder", ("spans", "types", "subjects", "choices", "states")),
    "encoder": Kind(
        "an encoder", ("spans", "subjects", "mentions", "choices", "embeddings", "states")
    ),
    "span": Kind("a span QA model", ("spans", "subjects", "mentions", "states")),
    "rationale": Kind(
        "a QA model with yes and no", ("spans", "types", "subjects", "mentions", "states")
    ),
    "xlnet": Kind("XLNet with yes and no", ("spans", "types", "subjects", "mentions", "states")),
    "choice": Kind("a multiple-choice model", ("choices", "embeddings")),
}
"""The kinds of answerers, by the name that `kind_of` gives them."""


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
    kind, how = kind_of(path), Choosing(**vars(asking))
    if need not in KINDS[kind].abilities:
        able = ", ".join(other.name for other in KINDS.values() if need in other.abilities)
        raise ValueError(f"{path}: {KINDS[kind].name} cannot {ABILITIES[need]}; what can: {able}")
    if kind == "file":
        from .predictions import Predictions

        return Predictions(path)
    if kind in ("endpoint", "seq2seq", "causal"):
        from .language_model import Decoder, LanguageModel

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
    from .checkpoint import ChoiceCheckpoint, QuestionCheckpoint

    if need not in ("choices", "embeddings"):
        return QuestionCheckpoint(path, how)
    if kind == "encoder" and need == "choices":
        log.warning("%s: was not fine-tuned for multiple choice; its head has random weights", path)
    return ChoiceCheckpoint(path, how)


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
    results, identities = dict[str, T](), dict[str, Any]()
    for name, path in named.items():
        answerer = opened(path) if opened else open_answerer(path, asking, need=need)
        results[name] = ask(name, answerer)
        if identity := getattr(answerer, "identity", None):
            identities[name] = identity
        del answerer  # before the next one is opened
    return results, {"identities": identities} if identities else {}
