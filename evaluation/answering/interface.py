"""Who answers in a protocol: one interface for fine-tuned checkpoints and language models.

    --checkpoint ot=runs/.../best.ckpt base=hf:google/flan-t5-base gpt=openai:gpt-4o-mini

Shape letters: N groups or texts, V the four variants, S the two subjects, C choices, M given spans, D hidden.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, cast

from storage.command_line import Count, split_name

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from data_modules.schema.groups import Group
    from data_modules.schema.questions import ChoiceQuestion, QAExample

LANGUAGE_MODELS = ("hf:", "openai:")
"""How the name of a language model begins; everything else names a checkpoint, or a file of answers."""

AnswerFile = Annotated[str, "[NAME=]FILE"]
"""A file of answers on the command line."""

Ability = Literal["spans", "types", "subjects", "mentions", "choices", "embeddings", "states"]
"""Answers to questions about a text; yes, no and unknown among them; scores of a group's subjects; scores of
given spans; scores of choices; embeddings of texts; hidden states of every token."""

PromptStyle = Literal["paper", "offers-unknown", "unifiedqa"]
ChoicePrompt = Literal["auto", "plain", "question", "unifiedqa", "letters"]
"""How language models are asked, and asked to choose (`evaluation.answering.prompts`)."""

Kind = Literal["file", "endpoint", "local", "encoder", "span", "rationale", "xlnet", "choice", "causal"]
"""Answers made elsewhere; a language model behind an endpoint or on this machine; the encoder of a Hugging
Face folder; checkpoints by their heads. A decoder is `causal`, be it a `.ckpt`, a folder or on the Hub."""


class Answer(NamedTuple):
    """The answer to one question."""

    example: int
    """Index of the question among those asked."""
    text: str
    """`unknown` where the model says so; "" of a plain span model means the same."""
    failure: str = ""
    """Why there is no answer: such a question is counted apart and never scored."""


class Answerer:
    """Anything that answers. Methods that it has no ability for are not implemented."""

    path: str
    offers_unknown: bool = False
    """Whether scores of subjects are shares among these and unknown, which has the rest."""
    may_abstain: bool | None = None
    """Of a checkpoint without heads for types: whether no answer counts as unknown; None: the data decide. A
    protocol that compares several sets decides once for all."""

    @property
    def identity(self) -> dict[str, Any]:
        """All that answers depend on besides the questions, as plain JSON: the key of finished work. Neither
        device nor batch size."""
        raise NotImplementedError

    def answers(self, examples: Sequence[QAExample], what: str = "answering") -> Iterator[Answer]:
        """The answer of every question, each once, in any order; `what` names the progress bar."""
        raise NotImplementedError

    def subject_scores(self, groups: Sequence[Group], what: str = "scoring groups") -> Tensor:
        """S(x) of both subjects in every variant: (N, V, S) float64 in [0, 1], in the order of `subjects`."""
        raise NotImplementedError

    def span_scores(self, examples: Sequence[QAExample], what: str = "choosing") -> list[np.ndarray]:
        """For each question how far log S of each of its `answers` lies above that of unknown, (M,) float32;
        -inf where the model does not see the span whole."""
        raise NotImplementedError

    def choice_logits(self, questions: Sequence[ChoiceQuestion], what: str = "choosing") -> list[np.ndarray]:
        """For each question, in order, its choices' logits (C,), float32; confidences are their softmax."""
        raise NotImplementedError

    def embeddings(self, texts: Sequence[str], what: str = "embedding texts") -> np.ndarray:
        """Vectors of length 1, (N, D) float32, so that their products are cosine similarities."""
        raise NotImplementedError

    def require_finite(self, *scores: Any) -> None:
        """Raise ValueError where a score in a tensor is NaN or infinite, which would read as "unknown"; -inf,
        the score of what is not allowed, passes."""
        for score in scores:
            if len(score) and not float(score.max()) < math.inf:  # the greatest of numbers and NaN is NaN
                raise ValueError(
                    f"{self.path}: gives scores that are not finite numbers, so its answers mean nothing; "
                    "choose another checkpoint, or --dtype float32"
                )


@dataclass(frozen=True)
class Compute:
    """How models run.

    Args:
        device: cpu, cuda, cuda:1, ...; auto is a GPU where there is one.
        dtype: of the weights of language models and decoders; what an encoder computes in. auto is float32,
            but for a language model (hf:) on a GPU what it was saved in.
        batch_size: rows in a batch (of groups, as many more as are short); requests to an endpoint at once.
    """

    device: str = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    batch_size: Count = 64


@dataclass(frozen=True)
class Asking(Compute):
    """How models are asked.

    Args:
        max_new_tokens: longest answer of a language model or a decoder.
        prompt: how language models are asked: the paper's story, turns and question behind Q: and A:; in our
            words, which offer unknown as an answer; or as UnifiedQA was trained.
        chat: never leaves out the chat template of a decoder or local language model that was not trained
            with it; auto: as a checkpoint was trained, else where the tokenizer has one.
    """

    max_new_tokens: Count = 32
    prompt: PromptStyle = "paper"
    chat: Literal["auto", "never"] = "auto"


@dataclass(frozen=True)
class Choosing(Asking):
    """How models are asked, also to choose.

    Args:
        choice_prompt: language models. plain, question: each choice alone behind the question; question is
            lm-evaluation-harness's way with PIQA (with --likelihood sum), without a chat template. unifiedqa
            lists the choices as UnifiedQA was trained; letters lists them, and the letter is the answer.
            auto: unifiedqa for sequence-to-sequence models, else plain.
        likelihood: language models: mean or sum of the log-probabilities of a choice's tokens.
    """

    choice_prompt: ChoicePrompt = "auto"
    likelihood: Literal["mean", "sum"] = "mean"


def kind_of(path: str) -> Kind:
    """What a name on the command line stands for; of a checkpoint what it is, however its name ends.

    Raises:
        ValueError: there is no such checkpoint.
    """
    if path.startswith(LANGUAGE_MODELS):
        return "local" if path.startswith("hf:") else "endpoint"
    if path.endswith(".jsonl"):
        return "file"
    from models.backbones import ARCHITECTURES
    from models.checkpoint import inspect

    info = inspect(path)
    return "causal" if ARCHITECTURES[info.architecture].causal else cast(Kind, info.heads or "encoder")


def named_sources(arguments: Sequence[str], flag: str) -> dict[str, str]:
    """`NAME=SOURCE` or `SOURCE` (named after its path) to sources by name.

    Raises:
        ValueError: two sources under one name.
    """
    named: dict[str, str] = {}
    for argument in arguments:
        name, path = split_name(argument)
        name = name or source_name(path)
        if name in named:
            raise ValueError(f"{flag}: two are called {name!r}; write NAME=PATH to tell them apart")
        named[name] = path
    return named


def named_answerers(checkpoint: Sequence[str] | None, predictions: Sequence[str] | None) -> dict[str, str]:
    """Who is asked, by name: models, then files of answers.

    Raises:
        ValueError: nobody, or two under one name.
    """
    if not checkpoint and not predictions:
        raise ValueError("name who is asked: --checkpoint, or --predictions with answers made elsewhere")
    return named_sources([*(checkpoint or []), *(predictions or [])], "--checkpoint")


def source_name(path: str) -> str:
    """What a source is called that the user did not name: a file's stem, the last part of a Hub name.

    >>> [source_name(path) for path in ("runs/a.ckpt", "org/bert-v1.5", "openai:m1.5@http://h/v1")]
    ['a', 'bert-v1.5', 'm1.5']
    """
    if path.startswith(LANGUAGE_MODELS):
        path = path.partition(":")[2].partition("@http")[0]
    last = Path(path.rstrip("/").rpartition("/")[2])
    known = last.suffix in (".ckpt", ".json", ".jsonl", ".parquet", ".csv", ".gz")
    return last.stem if known or Path(path).is_file() else last.name
