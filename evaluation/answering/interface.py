"""Answerers in protocols: one interface for fine-tuned checkpoints and language models.

Shape letters: N groups or texts, V the four variants, S the two subjects, C choices, M given spans,
D hidden.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from .asking import Asking

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from interventune.data_modules.schema.groups import Group
    from interventune.data_modules.schema.questions import ChoiceQuestion, QAExample

Ability = Literal["spans", "types", "subjects", "mentions", "choices", "embeddings", "states"]
"""Abilities: answers to questions about a text; also yes, no and unknown; scores of a group's
subjects; scores of given spans; scores of choices; embeddings of texts; hidden states of every
token.
"""

ChoicePrompt = Literal["auto", "plain", "question", "unifiedqa", "letters"]
"""Prompt styles in which language models choose (`interventune.evaluation.answering.prompts`)."""


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


class Answer(NamedTuple):
    """The answer to one question."""

    example: int
    """Index of the question in the call."""
    text: str
    """As the model writes it; metrics/unknown.py decides whether it says unknown, as "" of a span
    model.
    """
    failure: str = ""
    """Reason why there is no answer: such a question is counted separately and never scored."""
    unknown_score: float = math.nan
    """Score of unknown, comparable between questions of one model; NaN if the model gives none."""
    guess: str = ""
    """Best answer other than unknown, for a model with such a score."""


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
        self,
        examples: Sequence[QAExample],
        what: str = "choosing",
        *,
        against_unknown: bool = True,
    ) -> list[np.ndarray]:
        """For each question, log S of each of its `answers`, by default minus that of unknown, (M,)
        float32; -inf if no window contains the whole span.
        """
        raise NotImplementedError

    def choice_logits(
        self, questions: Sequence[ChoiceQuestion], what: str = "choosing"
    ) -> list[np.ndarray]:
        """For each question, in order, its choices' logits (C,), float32; confidences are their
        softmax.
        """
        raise NotImplementedError

    def embeddings(self, texts: Sequence[str], what: str = "embedding texts") -> np.ndarray:
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


def kind_of(path: str) -> str:
    """Return the kind of answerer, a key of `KINDS`, that a command-line name refers to: for a
    checkpoint the name of its heads, which its content decides, not its suffix. A decoder is
    `causal`, whether a `.ckpt`, a folder or on the Hub, and a folder's encoder `encoder`.
    ValueError: there is no such checkpoint, or `hf:` stands before an encoder.
    """
    if path.startswith("openai:"):
        return "endpoint"
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
