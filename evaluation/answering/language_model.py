"""Language models as answerers: questions become prompts, and the model's text becomes a short answer.

    --checkpoint base=hf:google/flan-t5-base gpt=openai:gpt-4o-mini
    --checkpoint uqa=hf:allenai/unifiedqa-t5-base --prompt unifiedqa

A local model, or a decoder's checkpoint, also scores given texts, which group bias and multiple choice need;
most endpoints only generate.

Shape letters: N groups, V the four variants, S the two subjects, C choices, M (prompt, continuation) pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from string import ascii_uppercase
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from data_modules.encoding.tokenizers import load_tokenizer
from data_modules.schema.groups import Group
from data_modules.schema.questions import ChoiceQuestion, QAExample
from evaluation.answering import prompts
from evaluation.answering.asking import Compute
from evaluation.answering.checkpoint import hold_weights
from evaluation.answering.interface import Answer, Answerer, Choosing, kind_of
from evaluation.answering.kept import kept
from evaluation.answering.sharing import shared
from models.checkpoint import load
from models.heads.causal import CausalModel
from models.language.local_model import LocalTextModel, load_text_model
from models.language.text_models import PairError, TextFailure, TextModel
from storage.errors import DataError

UNREPORTED = -100.0
"""The log-probability of a letter outside the most probable tokens."""
REQUESTS_AT_ONCE = 8
"""Number of concurrent requests to an endpoint."""
GROUPS_AT_ONCE = 512
"""Number of groups whose pairs are sorted by length and scored in batches of similar lengths."""


def open_language_model(
    path: str, compute: Compute, *, max_new_tokens: int, chat_template: bool | None = None
) -> TextModel:
    """Open a language model: by `hf:` or `openai:` name, or a decoder's `.ckpt`, folder or Hub name.

    Prompts use the tokenizer's chat template, if it has one, unless `chat_template` is False, or None for a
    checkpoint that was trained without it.

    Raises:
        ValueError: there is no such model.
    """
    if path.startswith("openai:"):
        from models.language.endpoint import EndpointTextModel

        parallel = min(compute.batch_size, REQUESTS_AT_ONCE)
        return EndpointTextModel(
            path.removeprefix("openai:"), max_new_tokens=max_new_tokens, parallel=parallel
        )
    how: dict[str, Any] = {"device": compute.device, "batch_size": compute.batch_size}
    how["max_new_tokens"] = max_new_tokens
    if path.startswith("hf:"):
        local = path.removeprefix("hf:")
        return load_text_model(local, dtype=compute.dtype, chat_template=chat_template is not False, **how)
    if kind_of(path) != "causal":
        raise ValueError(f"{path}: is no language model; name a decoder, hf:PATH or openai:MODEL[@URL]")
    model, info = load(path, CausalModel)
    if compute.dtype != "auto":
        hold_weights(model, compute.dtype)
    if chat_template is None:
        chat_template = info.encoding.get("prompts", {}).get("chat") != "never"
    tokenizer = load_tokenizer(info.tokenizer, model.architecture)
    return LocalTextModel(model.encoder, tokenizer, path, chat_template=chat_template, **how)


class LanguageModel(Answerer):
    """A language model that answers questions, scores subjects, and chooses; see `open_language_model`."""

    def __init__(self, path: str, asking: Choosing) -> None:
        chat = False if asking.chat == "never" or asking.choice_prompt == "question" else None
        model = open_language_model(path, asking, max_new_tokens=asking.max_new_tokens, chat_template=chat)
        self.path, self.model = path, cast(Any, model)
        if asking.choice_prompt == "auto":
            asking = replace(asking, choice_prompt="unifiedqa" if self.model.is_seq2seq else "plain")
        self.asking, self.by_letter = asking, asking.choice_prompt == "letters"
        self.replies: bool = self.model.is_seq2seq or self.model.chat
        """Whether it writes a separate reply; otherwise it continues the prompt, after a space."""

    @property
    def identity(self) -> dict[str, Any]:
        templates = [
            table[self.asking.prompt] for table in (prompts.QUESTIONS, prompts.EARLIER, prompts.SUBJECTS)
        ]
        choosing = [prompts.CHOICES[self.asking.choice_prompt], self.asking.likelihood]
        return {**self.model.identity, "prompt": templates, "turns": prompts.TURNS, "choosing": choosing}

    def answers(self, examples: Sequence[QAExample], what: str = "answering") -> Iterator[Answer]:
        texts = self.complete([prompts.question_prompt(example, self.asking.prompt) for example in examples])
        for i, text in enumerate(tqdm(texts, total=len(examples), desc=what, unit="question", disable=None)):
            if isinstance(text, TextFailure):
                yield Answer(i, "", text.reason)
            else:
                answer = prompts.short_answer(text)
                yield Answer(i, answer, "" if answer else "empty answer")

    @kept
    def complete(self, texts: Sequence[str]) -> Iterable[str | TextFailure]:
        return cast(Iterable[str | TextFailure], self.model.complete(texts))

    @shared
    def subject_scores(self, groups: Sequence[Group], what: str = "scoring groups") -> Tensor:
        """S(x) is the geometric mean of the probabilities of the subject's tokens given the prompt: like the
        span score sqrt(p_start p_end), it does not fall with the number of tokens. (LEI's appendix C names
        the encoding but no score.) Options are in the order of the context, so a preference for a position
        cancels over the two orders."""
        style, parts = self.asking.prompt, [torch.empty(0, 4, 2, dtype=torch.float64)]
        for start in tqdm(range(0, len(groups), GROUPS_AT_ONCE), desc=what, unit="batch", disable=None):
            chunk = groups[start : start + GROUPS_AT_ONCE]
            pairs = [
                (prompts.subject_prompt(variant, style), span.text)
                for group in chunk
                for variant in group.variants
                for span in variant.candidates
            ]
            total_M, count_M = self.likelihoods(pairs, style)
            parts.append((total_M / count_M).exp().view(len(chunk), 4, 2))
        return torch.cat(parts)

    def choice_logits(self, questions: Sequence[ChoiceQuestion], what: str = "choosing") -> list[np.ndarray]:
        """Return the log-likelihood of each choice after the prompt, or the log-probability of its letter.
        DataError names a question whose text has no tokens or does not fit the model's context, or that is
        not answered."""
        scores = self.letter_scores(questions) if self.by_letter else self.text_scores(questions)
        bar = tqdm(scores, total=len(questions), desc=what, unit="question", disable=None)
        return [np.array(logit_C, dtype=np.float32) for logit_C in bar]

    @kept
    def text_scores(self, questions: Sequence[ChoiceQuestion]) -> Iterable[list[float]]:
        style, asked = self.asking.choice_prompt, [(q, choice) for q in questions for choice in q.choices]
        pairs = [(prompts.choice_prompt(question, style), choice.strip()) for question, choice in asked]
        try:
            total_M, count_M = self.likelihoods(pairs, style)
        except PairError as error:
            raise DataError(f"question {asked[error.pair][0].id}: {error.reason}") from None
        score_M = total_M if self.asking.likelihood == "sum" else total_M / count_M
        return [part.tolist() for part in score_M.split([len(question.choices) for question in questions])]

    @kept
    def letter_scores(self, questions: Sequence[ChoiceQuestion]) -> Iterable[list[float]]:
        most = max(len(question.choices) for question in questions)
        apart = self.replies or self.path.startswith("openai:")
        labels = [letter if apart else f" {letter}" for letter in ascii_uppercase[:most]]
        texts = [prompts.choice_prompt(question, self.asking.choice_prompt) for question in questions]
        answers = self.model.next_token_logprobs(texts, labels, after="Answer:")
        for question, answer in zip(questions, answers, strict=True):
            if isinstance(answer, TextFailure):
                raise DataError(f"question {question.id}: {answer}")
            yield [max(score, UNREPORTED) for score in answer[: len(question.choices)]]

    def likelihoods(self, pairs: Sequence[tuple[str, str]], style: str) -> tuple[Tensor, Tensor]:
        """Return the log-likelihood of texts after their prompts, and the number of tokens: (M,) each."""
        space = "" if self.replies else " "
        total_M, count_M = self.model.log_likelihoods(
            [(prompt, space + prompts.in_style(text, style)) for prompt, text in pairs]
        )
        self.require_finite(total_M.abs())
        return total_M, count_M
