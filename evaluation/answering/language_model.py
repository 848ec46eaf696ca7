"""Language models as answerers: questions become prompts, and what the model writes becomes a short answer.

    --checkpoint base=hf:google/flan-t5-base gpt=openai:gpt-4o-mini --requests answers.jsonl
    --checkpoint uqa=hf:allenai/unifiedqa-t5-base --prompt unifiedqa

A local model also scores given texts, which group bias and multiple choice need; an endpoint writes only.

Shape letters: N groups, V the four variants, S the two subjects, C choices, M (prompt, continuation) pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from data_modules.schema import ChoiceQuestion, Group, QAExample
from evaluation.answering.interface import Ability, Answer, Answerer, Asking
from evaluation.answering.prompts import (
    CHOICE_WORDINGS,
    WORDINGS,
    choice_prompt,
    question_prompt,
    short_answer,
    subject_prompt,
)
from models.language.open_model import CachedTextModel, open_text_model
from models.language.text_models import TextFailure
from storage.errors import DataError

WRITES: frozenset[Ability] = frozenset({"spans", "types"})
SCORES: frozenset[Ability] = frozenset({"subjects", "choices"})

GROUPS_AT_ONCE = 32

Likelihood = Literal["mean", "sum"]


class LanguageModel(Answerer):
    """A language model that answers questions, by `hf:` or `openai:` name.

    Args:
        path: its name.
        asking: how it is asked; where `requests` names a file, answers are kept there.
        choice_prompt: wording of multiple choice; `auto` is unifiedqa for a sequence-to-sequence model.
        likelihood: of a choice: the mean over its tokens, or their sum.

    Raises:
        ValueError: there is no such model.
    """

    def __init__(
        self,
        path: str,
        asking: Asking,
        *,
        choice_prompt: Literal["auto", "plain", "unifiedqa"] = "auto",
        likelihood: Likelihood = "mean",
    ) -> None:
        endpoint = path.startswith("openai:")
        self.path, self.prompt, self.likelihood = path, asking.prompt, likelihood
        self.model = open_text_model(
            path,
            max_new_tokens=asking.max_new_tokens,
            device=asking.device,
            batch_size=asking.batch_size,
        )
        self.writer = CachedTextModel(self.model, asking.requests, max_requests=asking.max_requests)
        self.can = WRITES if endpoint else WRITES | SCORES
        if not endpoint:
            kind = "unifiedqa" if self.model.is_seq2seq else "plain"  # type: ignore[attr-defined]
            self.choice_wording = CHOICE_WORDINGS[kind if choice_prompt == "auto" else choice_prompt]

    @cached_property
    def identity(self) -> dict[str, Any]:
        """The model with its settings and the wording; how long and how warm plays no part in scores."""
        settings = {
            k: v for k, v in self.model.settings.items() if k not in ("max_new_tokens", "temperature")
        }
        wording = {"prompt": self.choice_wording._asdict(), "likelihood": self.likelihood}
        return {"name": self.model.name, "settings": settings, **wording}

    def answers(self, examples: Sequence[QAExample], what: str = "answering") -> Iterator[Answer]:
        """The answers in the order of the questions; no text at all is a failure too."""
        prompts = [question_prompt(example, self.prompt) for example in examples]
        texts = self.writer.complete(prompts)
        for i, text in enumerate(tqdm(texts, total=len(prompts), desc=what, unit="question", disable=None)):
            if isinstance(text, TextFailure):
                yield Answer(i, "", text.reason)
            else:
                answer = short_answer(text)
                yield Answer(i, answer, "" if answer else "empty answer")

    def subject_scores(self, groups: Sequence[Group], what: str = "scoring groups") -> Tensor:
        """S(x) of both subjects in the four variants: (N, 4, 2) float64, in the order of a group's subjects.

        S is the geometric mean of the probabilities of the subject's tokens given the prompt: as the span
        score sqrt(p_start p_end), it lies in [0, 1] and does not fall with the number of tokens. (LEI's
        appendix C names the encoding but no score.) The options stand in the order of the context, so that
        what a model prefers about a place cancels over the two orders.

        Raises:
            ValueError: a text does not fit the model.
        """
        lower = WORDINGS[self.prompt].lower
        parts = []
        for start in tqdm(range(0, len(groups), GROUPS_AT_ONCE), desc=what, unit="batch", disable=None):
            chunk = groups[start : start + GROUPS_AT_ONCE]
            pairs = [
                (subject_prompt(variant, self.prompt), self._joined(span.text, lower))
                for group in chunk
                for variant in group.variants
                for span in variant.candidates
            ]
            total_M = self.model.log_likelihoods(pairs)
            parts.append((total_M / self._token_counts(pairs)).exp().view(len(chunk), 4, 2))
        return torch.cat(parts)

    def choice_logits(
        self, questions: Sequence[ChoiceQuestion], what: str = "choosing"
    ) -> Iterator[np.ndarray]:
        """The log-likelihood (C,) of each choice behind the prompt, float32.

        Raises:
            DataError: a text has no tokens or does not fit the model's context; names the question.
        """
        for question in questions:
            prompt = choice_prompt(question, self.choice_wording)
            pairs = [
                (prompt, self._joined(text.strip(), self.choice_wording.lower)) for text in question.choices
            ]
            try:
                logit_C = self.model.log_likelihoods(pairs)
            except ValueError as error:
                raise DataError(f"question {question.id}: {error}") from None
            if self.likelihood == "mean":
                logit_C = logit_C / self._token_counts(pairs)
            yield logit_C.numpy().astype(np.float32)

    def _joined(self, text: str, lower: bool) -> str:
        """A continuation as it stands behind its prompt."""
        return ("" if starts_anew(self.model) else " ") + (text.lower() if lower else text)

    def _token_counts(self, pairs: Sequence[tuple[str, str]]) -> Tensor:
        return torch.tensor([token_count(self.model, *pair) for pair in pairs])


def starts_anew(model: Any) -> bool:
    """Whether a local model's reply is a text of its own, not the rest of the prompt."""
    return bool(model.is_seq2seq or model.chat)


def token_count(model: Any, prompt: str, continuation: str) -> int:
    """How many tokens of a local model the continuation has, behind the prompt where a model reads both."""

    def count(text: str, special: bool) -> int:
        return len(model.tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"])

    if starts_anew(model):
        return count(continuation, False)
    return max(1, count(prompt + continuation, True) - count(prompt, True))
