"""Who answers in a protocol: one interface for fine-tuned checkpoints and language models.

Shape letters: N groups or texts, V the four variants, S the two subjects, C choices, M given spans, D hidden.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from evaluation.answering.asking import LANGUAGE_MODELS, Asking

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from data_modules.schema.groups import Group
    from data_modules.schema.questions import ChoiceQuestion, QAExample

Ability = Literal["spans", "types", "subjects", "mentions", "choices", "embeddings", "states"]
"""Answers to questions about a text; yes, no and unknown among them; scores of a group's subjects; scores of
given spans; scores of choices; embeddings of texts; hidden states of every token."""

Kind = Literal["file", "endpoint", "local", "encoder", "span", "rationale", "xlnet", "choice", "causal"]
"""Answers made elsewhere; a language model behind an endpoint or on this machine; the encoder of a Hugging
Face folder; checkpoints by their heads. A decoder is `causal`, be it a `.ckpt`, a folder or on the Hub."""

ChoicePrompt = Literal["auto", "plain", "question", "unifiedqa", "letters"]
"""How language models are asked to choose (`evaluation.answering.prompts`)."""


@dataclass(frozen=True)
class Choosing(Asking):
    """How models are asked, also to choose.

    Args:
        choice_prompt: how language models choose. plain, question: each choice is scored alone after the
            question (question, with --likelihood sum: as lm-evaluation-harness evaluates PIQA, without a chat
            template); unifiedqa: UnifiedQA's list of choices; letters: a list, answered by a letter. auto is
            unifiedqa for sequence-to-sequence models, else plain.
        likelihood: score of a choice for language models: mean or sum of its tokens' log-probabilities.
    """

    choice_prompt: ChoicePrompt = "auto"
    likelihood: Literal["mean", "sum"] = "mean"


class Answer(NamedTuple):
    """The answer to one question."""

    example: int
    """Index of the question among those asked."""
    text: str
    """`unknown` where the model says so; "" of a plain span model means the same."""
    failure: str = ""
    """Why there is no answer: such a question is counted apart and never scored."""
    unknown_score: float = math.nan
    """How much speaks for unknown, comparable between questions of one model; NaN where it gives no score."""
    guess: str = ""
    """Of a model with such a score: its best answer other than unknown."""


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


def kind_of(path: str) -> Kind:
    """What a name on the command line stands for; of a checkpoint what it is, however its name ends.
    ValueError: there is no such checkpoint."""
    if path.startswith(LANGUAGE_MODELS):
        return "local" if path.startswith("hf:") else "endpoint"
    if path.endswith(".jsonl"):
        return "file"
    from models.backbones import ARCHITECTURES
    from models.checkpoint import inspect

    info = inspect(path)
    return "causal" if ARCHITECTURES[info.architecture].causal else cast(Kind, info.heads or "encoder")
