"""Language models as answerers: questions become prompts, and what the model writes becomes a short answer.

    --checkpoint base=hf:google/flan-t5-base gpt=openai:gpt-4o-mini --requests answers.jsonl
    --checkpoint uqa=hf:allenai/unifiedqa-t5-base --prompt unifiedqa

A local model also scores given texts, which group bias and multiple choice need; an endpoint writes only.

Shape letters: N groups, V the four variants, S the two subjects, C choices, M (prompt, continuation) pairs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from data_modules.encoding.tokenizers import load_tokenizer
from data_modules.schema import ChoiceQuestion, Group, QAExample
from evaluation.answering.checkpoint import hold_weights
from evaluation.answering.interface import Ability, Answer, Answerer, Asking, ChoicePrompt
from evaluation.answering.prompts import (
    CHOICE_WORDINGS,
    LETTERS,
    WORDINGS,
    choice_prompt,
    question_prompt,
    short_answer,
    subject_prompt,
)
from evaluation.processes import finished_work, shared, shared_rows
from models.checkpoint import fingerprint, load
from models.heads.causal import CausalModel
from models.language.local_model import Loaded, LocalTextModel
from models.language.open_model import CachedTextModel, open_text_model
from models.language.text_models import PairError, TextFailure, TextModel
from storage.errors import DataError

UNREPORTED = -100.0
"""Of the log-probability of a letter that is not among the most probable tokens."""
GROUPS_AT_ONCE, PAIRS_AT_ONCE = 512, 4096
"""So many are sorted by length, and scored in batches of similar ones, before the next are looked at."""


def open_language_model(path: str, *, device: str = "auto", dtype: str = "auto", **how: Any) -> TextModel:
    """A language model by name (`open_text_model`), or of a `.ckpt` of ours with a causal model.

    Raises:
        ValueError: there is none.
    """
    if not path.endswith(".ckpt"):
        return open_text_model(path, device=device, dtype=dtype, **how)
    model, info = load(path, CausalModel)
    if dtype != "auto":
        hold_weights(model, dtype)
    tokenizer = load_tokenizer(info.tokenizer, model.architecture)
    loaded = Loaded(model.encoder, tokenizer, fingerprint(model)[:16])
    how.pop("completions", None)  # it always continues the bare prompt
    return LocalTextModel(path, device=device, loaded=loaded, **how)


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
        choice_prompt: ChoicePrompt = "auto",
        likelihood: Literal["mean", "sum"] = "mean",
    ) -> None:
        self.path, self.prompt, self.likelihood = path, asking.prompt, likelihood
        how = {name: getattr(asking, name) for name in ("max_new_tokens", "device", "dtype", "batch_size")}
        bare = choice_prompt != "auto" and CHOICE_WORDINGS[choice_prompt].bare
        templated = asking.chat != "never" and not bare
        self.model = cast(Any, open_language_model(path, **how, chat_template=templated))
        if asking.chat == "always" and not getattr(self.model, "chat", True):
            raise ValueError(f"{path}: --chat always, but its tokenizer has no chat template")
        self.scored: dict[bytes, float] = {}
        """Likelihoods of choices by the digest of prompt and choice."""
        self.writer = CachedTextModel(
            self.model,
            finished_work(asking.requests, ("text",)),
            max_requests=asking.max_requests,
            ask=self.complete,
        )
        scores: frozenset[Ability] = frozenset()
        if "likelihood" in self.model.can:
            scores = frozenset({"subjects", "choices"})
            kind = "unifiedqa" if self.model.is_seq2seq else "plain"
            self.choice_wording = CHOICE_WORDINGS[kind if choice_prompt == "auto" else choice_prompt]
            self.orders = self.choice_wording.by_letter
        self.can = scores | {"spans", "types"}

    def reading(self, **options: Any) -> LanguageModel:
        """The same behind a `system` message, for likelihoods and letters."""
        if options.keys() != {"system"} or not isinstance(self.model, LocalTextModel):
            raise ValueError(f"{self.path}: only local language models read a system message here")
        other = copy(self)
        other.__dict__.pop("identity", None)
        other.model, other.scored = self.model.behind(options["system"]), {}
        return other

    @cached_property
    def identity(self) -> dict[str, Any]:
        """The model with its settings and the wording; how long and how warm plays no part in scores."""
        settings = {
            k: v for k, v in self.model.settings.items() if k not in ("max_new_tokens", "temperature")
        }
        wording = {"prompt": self.choice_wording._asdict(), "likelihood": self.likelihood}
        return {"name": self.model.name, "settings": settings, **wording}

    @shared
    def complete(self, prompts: Sequence[str]) -> Iterator[str | TextFailure]:
        """What the model writes, each prompt once."""
        yield from self.model.complete(prompts)

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

    @shared_rows
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
                (subject_prompt(variant, self.prompt), span.text.lower() if lower else span.text)
                for group in chunk
                for variant in group.variants
                for span in variant.candidates
            ]
            parts.append(self._log_likelihoods(pairs, "mean").exp().view(len(chunk), 4, 2))
        return torch.cat(parts)

    def choice_logits(
        self, questions: Sequence[ChoiceQuestion], what: str = "choosing"
    ) -> Iterator[np.ndarray]:
        """The log-likelihood (C,) of each choice behind the prompt, float32. Pairs of prompt and choice that
        were scored before, in whatever question, are not scored again.

        Raises:
            DataError: a text has no tokens or does not fit the model's context; names the question.
        """
        if self.choice_wording.by_letter:
            yield from self.by_letters(questions, what)
            return
        lower = self.choice_wording.lower
        keys: list[list[bytes]] = []
        new: dict[bytes, tuple[tuple[str, str], str]] = {}
        for question in questions:
            prompt, texts = choice_prompt(question, self.choice_wording), map(str.strip, question.choices)
            pairs = [(prompt, text.lower() if lower else text) for text in texts]
            keys.append([hashlib.sha256(json.dumps(pair).encode()).digest()[:16] for pair in pairs])
            for key, pair in zip(keys[-1], pairs, strict=True):
                if key not in self.scored:
                    new.setdefault(key, (pair, question.id))
        wanted = list(new)
        for start in tqdm(range(0, len(wanted), PAIRS_AT_ONCE), desc=what, unit="batch", disable=None):
            part = wanted[start : start + PAIRS_AT_ONCE]
            found = self._pair_scores([new[key] for key in part])
            self.scored.update(zip(part, found.tolist(), strict=True))
        for row in keys:
            yield np.array([self.scored[key] for key in row], dtype=np.float32)

    def by_letters(self, questions: Sequence[ChoiceQuestion], what: str) -> Iterator[np.ndarray]:
        """The log-probabilities of the letters, (C, C) float32: row o is of the order that begins with choice
        o, column c of the letter that stands for choice c there. Every choice stands behind every letter
        once, so that what a model prefers about a place can be averaged out (Zheng et al. 2024, "Large
        language models are not robust multiple choice selectors"). A letter that an endpoint does not report
        counts as e^-100.

        Raises:
            DataError: a prompt is not answered; names the question.
        """
        prompts: list[str] = []
        for question in questions:
            for first in range(len(question.choices)):
                turned = replace(question, choices=question.choices[first:] + question.choices[:first])
                prompts.append(choice_prompt(turned, self.choice_wording))
        count = max((len(question.choices) for question in questions), default=0)
        text_of_its_own = self.model.is_seq2seq or self.model.chat or self.path.startswith("openai:")
        labels = [letter if text_of_its_own else f" {letter}" for letter in LETTERS[:count]]
        different = list(dict.fromkeys(prompts))
        found = self.model.next_token_logprobs(different, labels, after="Answer:")
        bar = tqdm(found, total=len(different), desc=what, unit="prompt", disable=None)
        answer_of = dict(zip(different, bar, strict=True))
        rest = iter(prompts)
        for question in questions:
            size = len(question.choices)
            logit_OC = np.empty((size, size), dtype=np.float32)
            for first in range(size):
                answer = answer_of[next(rest)]
                if isinstance(answer, TextFailure):
                    raise DataError(f"question {question.id}: {answer}")
                logit_OC[first] = np.roll(np.maximum(answer[:size], UNREPORTED), first)
            yield logit_OC

    @shared_rows
    def _pair_scores(self, asked: Sequence[tuple[tuple[str, str], str]]) -> Tensor:
        """Of pairs of prompt and choice, each with its question's id."""
        try:
            return self._log_likelihoods([pair for pair, _ in asked], self.likelihood)
        except PairError as error:
            raise DataError(f"question {asked[error.pair][1]}: {error.reason}") from None

    def _log_likelihoods(self, pairs: Sequence[tuple[str, str]], over: Literal["mean", "sum"]) -> Tensor:
        """Of texts behind their prompts, the sum or the mean over a text's tokens: (M,) float64."""
        apart = self.model.is_seq2seq or self.model.chat  # a reply is a text of its own
        total_M, count_M = self.model.log_likelihoods(
            [(prompt, text if apart else f" {text}") for prompt, text in pairs]
        )
        self.require_finite(total_M.abs())
        found: Tensor = total_M if over == "sum" else total_M / count_M
        return found
