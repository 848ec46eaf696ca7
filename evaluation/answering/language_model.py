"""Language models as answerers: questions become prompts, and what the model writes becomes a short answer.

    --checkpoint base=hf:google/flan-t5-base gpt=openai:gpt-4o-mini
    --checkpoint uqa=hf:allenai/unifiedqa-t5-base --prompt unifiedqa

A local model, or a decoder's checkpoint, also scores given texts, which group bias and multiple choice need;
most endpoints write only.

Shape letters: N groups, V the four variants, S the two subjects, C choices, M (prompt, continuation) pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from string import ascii_uppercase
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from data_modules.encoding.tokenizers import load_tokenizer
from data_modules.schema import ChoiceQuestion, Group, QAExample
from evaluation.answering.checkpoint import hold_weights
from evaluation.answering.interface import (
    LANGUAGE_MODELS,
    Ability,
    Answer,
    Answerer,
    Choosing,
    Compute,
    kind_of,
)
from evaluation.answering.prompts import (
    CHOICE_WORDINGS,
    TURNS,
    WORDINGS,
    choice_prompt,
    question_prompt,
    short_answer,
    subject_prompt,
)
from evaluation.processes import kept, shared
from models.checkpoint import fingerprint, load
from models.heads.causal import CausalModel
from models.language.local_model import Loaded, LocalTextModel
from models.language.open_model import open_text_model
from models.language.text_models import PairError, TextFailure, TextModel
from storage.errors import DataError

UNREPORTED = -100.0
"""The log-probability of a letter that is not among the most probable tokens."""
GROUPS_AT_ONCE = 512
"""Groups whose pairs are sorted by length and scored in batches of similar ones."""


def open_language_model(
    path: str, compute: Compute, *, max_new_tokens: int, chat_template: bool | None = None
) -> TextModel:
    """A language model: by `hf:` or `openai:` name, or a decoder's `.ckpt`, folder or Hub name.

    Args:
        path: its name.
        compute: where and how it runs.
        max_new_tokens: longest answer.
        chat_template: whether prompts are presented in the tokenizer's chat template, if it has one; None: as
            a checkpoint was trained.

    Raises:
        ValueError: there is none.
    """
    how: dict[str, Any] = {"device": compute.device, "batch_size": compute.batch_size}
    how["max_new_tokens"] = max_new_tokens
    if path.startswith(LANGUAGE_MODELS):
        return open_text_model(path, dtype=compute.dtype, chat_template=chat_template is not False, **how)
    if kind_of(path) != "causal":
        raise ValueError(f"{path}: is no language model; name a decoder, hf:PATH or openai:MODEL[@URL]")
    model, info = load(path, CausalModel)
    if compute.dtype != "auto":
        hold_weights(model, compute.dtype)
    tokenizer = load_tokenizer(info.tokenizer, model.architecture)
    if chat_template is None:
        chat_template = info.encoding.get("chat") != "never"
    loaded = Loaded(model.encoder, tokenizer, fingerprint(model))
    return LocalTextModel(path, chat_template=chat_template, loaded=loaded, **how)


class LanguageModel(Answerer):
    """A language model that answers questions, scores subjects, and chooses.

    Args:
        path: its name, see `open_language_model`.
        asking: how it is asked; the choice prompt `auto` is unifiedqa for a sequence-to-sequence model, else
            plain.

    Raises:
        ValueError: there is no such model.
    """

    can: frozenset[Ability] = frozenset({"spans", "types", "subjects", "choices"})

    def __init__(self, path: str, asking: Choosing) -> None:
        self.path, self.prompt, self.likelihood = path, asking.prompt, asking.likelihood
        wanted = asking.choice_prompt
        chat = {"auto": None, "always": True, "never": False}[asking.chat]
        if wanted != "auto" and CHOICE_WORDINGS[wanted].bare:
            chat = False
        model = open_language_model(path, asking, max_new_tokens=asking.max_new_tokens, chat_template=chat)
        if asking.chat == "always" and not getattr(model, "chat", True):
            raise ValueError(f"{path}: --chat always, but its tokenizer has no chat template")
        self.model = cast(Any, model)
        usual = "unifiedqa" if self.model.is_seq2seq else "plain"
        self.choice_wording = CHOICE_WORDINGS[usual if wanted == "auto" else wanted]

    @property
    def by_letter(self) -> bool:
        """Whether a choice's letter is the answer."""
        return self.choice_wording.by_letter

    @property
    def identity(self) -> dict[str, Any]:
        """The model with its settings, and the wordings."""
        return {
            **self.model.identity,
            "prompt": WORDINGS[self.prompt]._asdict(),
            "turns": TURNS,
            "choice_prompt": self.choice_wording._asdict(),
            "likelihood": self.likelihood,
        }

    def answers(self, examples: Sequence[QAExample], what: str = "answering") -> Iterator[Answer]:
        """The answers in the order of the questions; no text at all is a failure too."""
        texts = self.complete([question_prompt(example, self.prompt) for example in examples])
        for i, text in enumerate(tqdm(texts, total=len(examples), desc=what, unit="question", disable=None)):
            if isinstance(text, TextFailure):
                yield Answer(i, "", text.reason)
            else:
                answer = short_answer(text)
                yield Answer(i, answer, "" if answer else "empty answer")

    @kept
    def complete(self, prompts: Sequence[str]) -> Iterable[str | TextFailure]:
        """What the model writes."""
        return cast(Iterable[str | TextFailure], self.model.complete(prompts))

    @shared
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
        parts = [torch.empty(0, 4, 2, dtype=torch.float64)]
        for start in tqdm(range(0, len(groups), GROUPS_AT_ONCE), desc=what, unit="batch", disable=None):
            chunk = groups[start : start + GROUPS_AT_ONCE]
            pairs = [
                (subject_prompt(variant, self.prompt), span.text.lower() if lower else span.text)
                for group in chunk
                for variant in group.variants
                for span in variant.candidates
            ]
            total_M, count_M = self.likelihoods(pairs)
            parts.append((total_M / count_M).exp().view(len(chunk), 4, 2))
        return torch.cat(parts)

    def choice_logits(self, questions: Sequence[ChoiceQuestion], what: str = "choosing") -> list[np.ndarray]:
        """The log-likelihood (C,) of each choice behind the prompt, float32; by letters the log-probability
        of each choice's letter, where a letter that an endpoint does not report counts as e^-100.

        Raises:
            DataError: a text has no tokens, does not fit the model's context, or is not answered; names the
                question.
        """
        scores = self.letter_scores(questions) if self.by_letter else self.text_scores(questions)
        bar = tqdm(scores, total=len(questions), desc=what, unit="question", disable=None)
        return [np.array(logit_C, dtype=np.float32) for logit_C in bar]

    @kept
    def text_scores(self, questions: Sequence[ChoiceQuestion]) -> Iterable[list[float]]:
        """The likelihood of each choice."""
        lower = self.choice_wording.lower
        owners: list[str] = []
        pairs: list[tuple[str, str]] = []
        for question in questions:
            prompt = choice_prompt(question, self.choice_wording)
            for choice in map(str.strip, question.choices):
                pairs.append((prompt, choice.lower() if lower else choice))
                owners.append(question.id)
        try:
            total_M, count_M = self.likelihoods(pairs)
        except PairError as error:
            raise DataError(f"question {owners[error.pair]}: {error.reason}") from None
        score_M = iter((total_M if self.likelihood == "sum" else total_M / count_M).tolist())
        return [[next(score_M) for _ in question.choices] for question in questions]

    @kept
    def letter_scores(self, questions: Sequence[ChoiceQuestion]) -> Iterable[list[float]]:
        """The log-probability of each choice's letter."""
        most = max(len(question.choices) for question in questions)
        apart = self.model.is_seq2seq or self.model.chat or self.path.startswith("openai:")
        labels = [letter if apart else f" {letter}" for letter in ascii_uppercase[:most]]
        prompts = [choice_prompt(question, self.choice_wording) for question in questions]
        answers = self.model.next_token_logprobs(prompts, labels, after="Answer:")
        for question, answer in zip(questions, answers, strict=True):
            if isinstance(answer, TextFailure):
                raise DataError(f"question {question.id}: {answer}")
            yield [max(score, UNREPORTED) for score in answer[: len(question.choices)]]

    def likelihoods(self, pairs: Sequence[tuple[str, str]]) -> tuple[Tensor, Tensor]:
        """Of texts behind their prompts the log-likelihood, and the number of tokens: (M,) each."""
        apart = self.model.is_seq2seq or self.model.chat  # a reply is a text of its own
        total_M, count_M = self.model.log_likelihoods(
            [(prompt, text if apart else f" {text}") for prompt, text in pairs]
        )
        self.require_finite(total_M.abs())
        return total_M, count_M
