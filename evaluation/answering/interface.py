"""Answerers in protocols: one interface for fine-tuned checkpoints, language models and files.

    answerer = open_answerer("runs/.../best.ckpt", Asking(), need="types")

Flags name them as --checkpoint ot=runs/.../best.ckpt base=hf:google/flan-t5-base
gpt=openai:gpt-4o-mini. Only the code of an opened kind is imported.

Shape letters: N groups or texts, V the four variants, S the two subjects, C choices, M given spans,
D hidden.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal

from interventune.data_modules.schema.questions import Answer, ChoiceQuestion, QAExample
from interventune.storage.command_line import Count, split_name
from interventune.storage.documents import own_yaml
from interventune.storage.progress import progress

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from interventune.data_modules.schema.groups import Group

log = logging.getLogger(__name__)

Ability = Literal["spans", "types", "subjects", "mentions", "choices", "embeddings", "states"]
"""Abilities: answers to questions about a text; also yes, no and unknown; scores of a group's
subjects; scores of given spans; scores of choices; embeddings of texts; hidden states of every
token.
"""

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

PromptStyle = Literal["auto", "paper", "offers-unknown", "unifiedqa"]
"""Prompt styles for language models (prompts.yaml)."""

ChoicePrompt = Literal["auto", "plain", "question", "unifiedqa", "letters"]
"""Prompt styles in which language models choose (language_model.py)."""


@dataclass(frozen=True)
class Compute:
    """How models run.

    Args:
        device: cpu, cuda, cuda:1, ...; auto takes a GPU if there is one.
        dtype: precision of a language model's weights, and of an encoder's computation. auto is
            float32, except for a language model on a GPU, which keeps the precision of its files.
        batch_size: rows per batch (`bias` adds more when they are short).
        tokenizer: the tokenizer of endpoints' models, a folder or Hub name. With it they are asked
            through /v1/completions, as local models, and score given texts; else through chat.
        parallel: simultaneous requests to an endpoint.
    """

    device: str = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    batch_size: Count = 64
    tokenizer: str = ""
    parallel: Count = 8


@dataclass(frozen=True)
class Asking(Compute):
    """How models are queried.

    Args:
        max_new_tokens: maximum length of an answer that a language model writes.
        prompt: prompt for language models. auto: as the model was trained here, else as it would
            be; paper: the story, earlier turns and the question after Q: and A:; offers-unknown: an
            instruction that allows the answer unknown; unifiedqa: UnifiedQA's format.
        chat: chat template of local language models. auto: as the model was trained here, else if
            the tokenizer has one; never: leave it out.
    """

    max_new_tokens: Count = 32
    prompt: PromptStyle = "auto"
    chat: Literal["auto", "never"] = "auto"


@dataclass(frozen=True)
class Choosing(Asking):
    """How models are queried, also for choices.

    Args:
        choice_prompt: how language models choose. plain, question: each choice is scored alone
            after the question (question, with --likelihood sum: as lm-evaluation-harness evaluates
            PIQA, without a chat template); unifiedqa: UnifiedQA's list of choices; letters: a list,
            answered by a letter. auto is unifiedqa for sequence-to-sequence models, else plain.
        likelihood: score of a choice for language models: mean or sum of its tokens'
            log-probabilities.
    """

    choice_prompt: ChoicePrompt = "auto"
    likelihood: Literal["mean", "sum"] = "mean"


class Answerer:
    """The interface of all answerers. Methods for abilities that one lacks are not implemented."""

    path: str
    offers_unknown: bool = False
    """Whether unknown is a candidate, so that subjects' scores and its own sum to 1."""
    may_abstain: bool | None = None
    """For a checkpoint without heads for types: whether no answer counts as unknown; None: the data
    decide. A protocol that compares several sets decides once for all.
    """

    @property
    def identity(self) -> dict[str, Any]:
        """Everything except the questions that answers depend on, as plain JSON: the key of
        finished work. It contains neither device nor batch size.
        """
        raise NotImplementedError

    def answers(self, examples: Sequence[QAExample], what: str = "answering") -> Iterator[Answer]:
        """Yield the answer of every question, each once, in any order; `what` names the progress
        bar.
        """
        raise NotImplementedError

    def subject_scores(self, groups: Sequence[Group], what: str = "scoring groups") -> Tensor:
        """S(x) for each subject in every variant: (N, V, S) float64 in [0, 1], in the order of
        `subjects`.
        """
        raise NotImplementedError

    def span_scores(
        self, examples: Sequence[QAExample], what: str = "choosing"
    ) -> list[np.ndarray]:
        """For each question, log S of each of its `answers` minus that of unknown, (M,) float32;
        -inf if no window contains the whole span.
        """
        raise NotImplementedError

    def choice_scores(self, questions: Sequence[ChoiceQuestion]) -> Iterable[list[float]]:
        """Yield the logits of each question's choices, in order, as plain numbers."""
        raise NotImplementedError

    def choice_logits(
        self, questions: Sequence[ChoiceQuestion], what: str = "choosing"
    ) -> list[np.ndarray]:
        """For each question, in order, its choices' logits (C,), float32; confidences are their
        softmax.
        """
        import numpy as np

        bar = progress(self.choice_scores(questions), what, "question", len(questions))
        return [np.array(logit_C, dtype=np.float32) for logit_C in bar]

    def embeddings(self, texts: Sequence[str], what: str = "embedding texts") -> Tensor:
        """Return vectors of length 1, (N, D) float32, so that their products are cosine
        similarities.
        """
        raise NotImplementedError

    def require_finite(self, *scores: Any) -> None:
        """Raise ValueError if a tensor contains NaN or infinite scores, which would read as
        "unknown"; -inf, the score of disallowed answers, is accepted.
        """
        for score in scores:
            if len(score) and not float(score.max()) < math.inf:  # max returns NaN if there is one
                raise ValueError(
                    f"{self.path}: gives scores that are not finite numbers, so its answers mean "
                    "nothing; choose another checkpoint, or --dtype float32"
                )


@dataclass(frozen=True)
class Kind:
    """A kind of answerer: its name in messages, its class, and its abilities."""

    name: str
    answerer: str
    abilities: tuple[Ability, ...]


KINDS = own_yaml(__file__, dict[str, Kind], "kinds.yaml")


def kind_of(path: str, asking: Compute | None = None) -> str:
    """Return the kind of answerer, a key of `KINDS`, that a command-line name refers to: for a
    checkpoint the name of its heads, which its content decides, not its suffix. A decoder is
    `causal`, whether a `.ckpt`, a folder or on the Hub, and a folder's encoder `encoder`.
    ValueError: there is no such checkpoint, or `hf:` stands before an encoder.
    """
    if path.startswith("openai:"):
        return "served" if asking and asking.tokenizer else "endpoint"
    if path.endswith((".jsonl", ".json")):
        return "file"
    from interventune.models.adapters import read_config
    from interventune.models.backbones import ARCHITECTURES
    from interventune.models.loading import is_file, read_info

    local = path.removeprefix("hf:")  # which only says that it is a language model
    if not is_file(local) and read_config(local).is_encoder_decoder:
        return "seq2seq"
    info = read_info(local)
    if ARCHITECTURES[info.architecture].causal:
        return "causal"
    if path.startswith("hf:"):
        raise ValueError(f"{path}: is an encoder, no language model; leave out hf:")
    return info.heads or "encoder"


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
    kind = kind_of(path, asking)
    how = Choosing(**vars(asking))
    if need not in KINDS[kind].abilities:
        able = ", ".join(other.name for other in KINDS.values() if need in other.abilities)
        raise ValueError(f"{path}: {KINDS[kind].name} cannot {ABILITIES[need]}; what can: {able}")
    if kind == "endpoint" and need == "choices" and how.choice_prompt != "letters":
        raise ValueError(
            f"{path}: an endpoint without --tokenizer chooses by letter; add --tokenizer, or "
            "--choice-prompt letters"
        )
    if kind == "encoder" and need in ("choices", "embeddings"):
        kind = "choice"
        if need == "choices":
            log.warning(
                "%s: was not fine-tuned for multiple choice; its head has random weights", path
            )
    if how.choice_prompt == "question":  # as in lm-evaluation-harness
        how = replace(how, chat="never")
    if kind == "causal" and need == "states" and how.dtype == "auto":
        how = replace(how, dtype="float32")  # bfloat16 keeps three digits of a state
    answerer: Answerer = resolve_name(f"{__package__}.{KINDS[kind].answerer}")(path, how)
    return answerer


def named_sources(arguments: Sequence[str], flag: str) -> dict[str, str]:
    """Map `NAME=SOURCE` or `SOURCE` (named after its path) to sources by name. ValueError: repeated
    name.
    """
    named: dict[str, str] = {}
    for argument in arguments:
        name, path = split_name(argument)
        name = name or source_name(path)
        if name in named:
            raise ValueError(f"{flag}: two are called {name!r}; write NAME=PATH to tell them apart")
        named[name] = path
    return named


def source_name(path: str) -> str:
    """Return the default name of a source: a file's stem, the last part of a Hub name.

    >>> [source_name(path) for path in ("runs/a.ckpt", "org/bert-v1.5", "openai:m1.5@http://h/v1")]
    ['a', 'bert-v1.5', 'm1.5']
    """
    if path.startswith(("hf:", "openai:")):
        path = path.partition(":")[2].partition("@http")[0]
    last = Path(path.rstrip("/").rpartition("/")[2])
    known = last.suffix in (".ckpt", ".json", ".jsonl", ".parquet", ".csv", ".gz")
    return last.stem if known or os.path.isfile(path) else last.name
