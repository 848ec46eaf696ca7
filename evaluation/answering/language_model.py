"""Language models as answerers: questions become prompts, and the model's text becomes a short
answer.

    --checkpoint base=hf:google/flan-t5-base gpt=openai:gpt-4o-mini
    --checkpoint uqa=hf:allenai/unifiedqa-t5-base --prompt unifiedqa

A local model also scores given texts, which group bias and multiple choice need; most endpoints
only generate.

Shape letters: N groups, V the four variants, S the two subjects, C choices, K scored texts of a
prompt, M (prompt, continuation) pairs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from string import ascii_uppercase
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm
from transformers import AutoModelForSeq2SeqLM

from interventune.data_modules.encoding.prompts import PromptTokens, group_prompts, question_prompts
from interventune.data_modules.encoding.replies import answer_in
from interventune.data_modules.encoding.tokenizers import load_tokenizer
from interventune.data_modules.encoding.windows import Messages, Prompts
from interventune.data_modules.schema.groups import Group
from interventune.data_modules.schema.questions import ChoiceQuestion, QAExample
from interventune.evaluation.answering import prompts as styles
from interventune.evaluation.answering.asking import Compute
from interventune.evaluation.answering.checkpoint import (
    Held,
    QuestionCheckpoint,
    from_files,
    weights_type,
)
from interventune.evaluation.answering.interface import (
    Answer,
    Answerer,
    Choosing,
    kind_of,
    local_path,
)
from interventune.evaluation.answering.work import kept, shared
from interventune.models.adapters import merge_folder
from interventune.models.backbones import pick_device
from interventune.models.checkpoint import peft_base
from interventune.models.cpu_kernels import use_linear_kernels
from interventune.models.heads.causal import CausalModel
from interventune.models.language.local_model import LocalTextModel
from interventune.models.language.text_models import PairError, Prompt, TextFailure, TextModel
from interventune.models.loading import read_folder
from interventune.storage.errors import DataError

UNREPORTED = -100.0
"""The log-probability of a letter outside the most probable tokens."""
REQUESTS_AT_ONCE = 8
"""Number of concurrent requests to an endpoint."""
GROUPS_AT_ONCE = 512
"""Number of groups whose pairs are sorted by length and scored in batches of similar lengths."""


def open_text_model(
    path: str, compute: Compute, *, max_new_tokens: int, chat: Literal["auto", "never"] = "auto"
) -> TextModel:
    """Open a language model: at an endpoint (`openai:`), or a `.ckpt`, folder or Hub name.

    Args:
        chat: whether prompts use the tokenizer's chat template: `auto`, if it has one and a
            checkpoint was not trained without it, or `never`.

    Raises:
        ValueError: there is no such model.
    """
    if path.startswith("openai:"):
        from interventune.models.language.endpoint import EndpointTextModel

        parallel = min(compute.batch_size, REQUESTS_AT_ONCE)
        return EndpointTextModel(
            path.removeprefix("openai:"), max_new_tokens=max_new_tokens, parallel=parallel
        )
    kind, local = kind_of(path), local_path(path)
    if kind == "seq2seq":
        model, _ = read_folder(AutoModelForSeq2SeqLM, peft_base(local), dtype=weights_type(compute))
        if peft_base(local) != local:
            model, _ = merge_folder(model, local)
        held = model.to(pick_device(compute.device)), load_tokenizer(local), dict[str, Any]()
    elif kind == "causal":
        decoder, *rest = from_files(path, CausalModel, compute)
        held = decoder.encoder, *rest
        chat = held[2].get("prompts", {}).get("chat", chat) if chat == "auto" else chat
    else:
        raise ValueError(
            f"{path}: is no language model; name a decoder, hf:PATH or openai:MODEL[@URL]"
        )
    return local_model(
        path, held, chat, max_new_tokens=max_new_tokens, batch_size=compute.batch_size
    )


def local_model(
    path: str, held: Held, chat: Literal["auto", "never"], **options: Any
) -> LocalTextModel:
    """Make a text model of a model of transformers; `options` are those of `LocalTextModel`."""
    model, tokenizer, _ = held
    if model.device.type == "cpu" and not options.get("weights"):
        use_linear_kernels(model)
    tokens = PromptTokens(tokenizer, chat, seq2seq=model.config.is_encoder_decoder)
    return LocalTextModel(model, tokens, path, **options)


class LanguageModel(Answerer):
    """A language model that answers questions, scores subjects, and chooses.

    Args:
        path: its name on the command line.
        asking: how it is queried.
        model: the opened model (default: `open_text_model`).
        prompts: those of its training, which `--prompt auto` means.
    """

    def __init__(
        self,
        path: str,
        asking: Choosing,
        model: TextModel | None = None,
        prompts: Prompts | None = None,
    ) -> None:
        if model is None:
            most, chat = asking.max_new_tokens, chat_of(asking)
            model = open_text_model(path, asking, max_new_tokens=most, chat=chat)
        self.path, self.model = path, cast(Any, model)
        if asking.choice_prompt == "auto":
            asking = replace(
                asking, choice_prompt="unifiedqa" if self.model.is_seq2seq else "plain"
            )
        self.asking, self.by_letter = asking, asking.choice_prompt == "letters"
        self.prompts: Prompts = styles.STYLES.get(asking.prompt) or prompts or Prompts()
        self.texts = 2 if self.model.is_seq2seq else self.prompts.candidates
        """Number of texts that are scored for a question between two subjects."""
        self.offers_unknown = self.texts == 3

    @property
    def identity(self) -> dict[str, Any]:
        choosing = [styles.CHOICES[self.asking.choice_prompt], self.asking.likelihood]
        lower = self.asking.prompt == "unifiedqa"
        return {
            **self.model.identity,
            "prompts": asdict(self.prompts),
            "lower": lower,
            "choosing": choosing,
        }

    def answers(self, examples: Sequence[QAExample], what: str = "answering") -> Iterator[Answer]:
        made = question_prompts(examples, self.prompts, answers=False)
        messages = [self.in_style(prompt.messages) for prompt in made]
        order = sorted(
            range(len(messages)), key=lambda i: -len(str(messages[i]))
        )  # similar lengths together
        texts = self.complete([messages[i] for i in order])
        bar = tqdm(texts, total=len(order), desc=what, unit="question", disable=None)
        for i, text in zip(order, bar, strict=True):
            found = answer_in("", text.reason) if isinstance(text, TextFailure) else answer_in(text)
            yield Answer(i, *found)

    def in_style(self, messages: Messages) -> Messages:
        """Return messages in the form of the style."""
        return [
            {**message, "content": styles.in_style(message["content"], self.asking.prompt)}
            for message in messages
        ]

    @kept
    def complete(self, prompts: Sequence[Prompt]) -> Iterable[str | TextFailure]:
        return cast(Iterable[str | TextFailure], self.model.complete(prompts))

    @shared
    def subject_scores(self, groups: Sequence[Group], what: str = "scoring groups") -> Tensor:
        """S(x) of a causal model is its share of the probability of the subjects (and of unknown,
        if the prompt offers it), as in training: the softmax over the mean log-likelihoods of their
        tokens. Of a sequence-to-sequence model it is the geometric mean of the tokens'
        probabilities. Neither falls with the number of tokens. (LEI's appendix C names the encoding
        but no score.) Options are in the order of the context, so a preference for a position
        cancels over the two orders.
        """
        parts, K = [torch.empty(0, 4, 2, dtype=torch.float64)], self.texts
        for start in tqdm(
            range(0, len(groups), GROUPS_AT_ONCE), desc=what, unit="batch", disable=None
        ):
            chunk = groups[start : start + GROUPS_AT_ONCE]
            pairs = [
                (self.in_style(prompt.messages), text)
                for prompt in group_prompts(chunk, self.prompts)
                for text in prompt.continuations[:K]
            ]
            try:
                total_M, count_M = self.likelihoods(pairs, self.asking.prompt)
            except PairError as error:
                raise DataError(
                    f"group {chunk[error.pair // (4 * K)].key}: {error.reason}"
                ) from None
            log_score_NVK = (total_M / count_M).view(len(chunk), 4, K)
            log_score_NVK = (
                log_score_NVK if self.model.is_seq2seq else log_score_NVK.log_softmax(-1)
            )
            parts.append(log_score_NVK[..., :2].exp())
        return torch.cat(parts)

    def choice_logits(
        self, questions: Sequence[ChoiceQuestion], what: str = "choosing"
    ) -> list[np.ndarray]:
        """Return the log-likelihood of each choice after the prompt, or the log-probability of its
        letter. DataError names a question whose text has no tokens or does not fit the model's
        context, or that is not answered.
        """
        scores = self.letter_scores(questions) if self.by_letter else self.text_scores(questions)
        bar = tqdm(scores, total=len(questions), desc=what, unit="question", disable=None)
        return [np.array(logit_C, dtype=np.float32) for logit_C in bar]

    @kept
    def text_scores(self, questions: Sequence[ChoiceQuestion]) -> Iterable[list[float]]:
        style, asked = (
            self.asking.choice_prompt,
            [(q, choice) for q in questions for choice in q.choices],
        )
        pairs = [
            (styles.choice_prompt(question, style), choice.strip()) for question, choice in asked
        ]
        try:
            total_M, count_M = self.likelihoods(pairs, style)
        except PairError as error:
            raise DataError(f"question {asked[error.pair][0].id}: {error.reason}") from None
        score_M = total_M if self.asking.likelihood == "sum" else total_M / count_M
        return [
            part.tolist()
            for part in score_M.split([len(question.choices) for question in questions])
        ]

    @kept
    def letter_scores(self, questions: Sequence[ChoiceQuestion]) -> Iterable[list[float]]:
        most = max(len(question.choices) for question in questions)
        labels = [f"{self.model.space}{letter}" for letter in ascii_uppercase[:most]]
        texts = [
            styles.choice_prompt(question, self.asking.choice_prompt) for question in questions
        ]
        answers = self.model.next_token_logprobs(texts, labels, after="Answer:")
        for question, answer in zip(questions, answers, strict=True):
            if isinstance(answer, TextFailure):
                raise DataError(f"question {question.id}: {answer}")
            yield [max(score, UNREPORTED) for score in answer[: len(question.choices)]]

    def likelihoods(self, pairs: Sequence[tuple[Prompt, str]], style: str) -> tuple[Tensor, Tensor]:
        """Return the log-likelihood of texts after their prompts, and the number of tokens: (M,)
        each.
        """
        space = self.model.space
        total_M, count_M = self.model.log_likelihoods(
            [(prompt, space + styles.in_style(text, style)) for prompt, text in pairs]
        )
        self.require_finite(total_M.abs())
        return total_M, count_M


def chat_of(asking: Choosing) -> Literal["auto", "never"]:
    """Return whether prompts may use a chat template; lm-evaluation-harness's do not."""
    return "never" if asking.choice_prompt == "question" else asking.chat


class Decoder(QuestionCheckpoint):
    """A causal model: it answers, scores and chooses as a language model, and shows its hidden
    states.
    """

    kind = CausalModel

    def __init__(self, path: str, asking: Choosing, held: Held | None = None) -> None:
        super().__init__(path, asking, held)
        prompts: Prompts = self.encoding.prompts
        if chat_of(asking) == "never":
            prompts = replace(prompts, chat="never")
        options = {"max_new_tokens": asking.max_new_tokens, "batch_size": asking.batch_size}
        model = local_model(
            path,
            (self.model.encoder, self.tokenizer, {}),
            prompts.chat,
            weights=self.digest,
            **options,
        )
        self.asked = LanguageModel(path, asking, model, prompts)
        self.offers_unknown = self.asked.offers_unknown
        # Rows of hidden states are limited by the model alone.
        longest = self.model.max_tokens or sys.maxsize
        self.encoding = replace(
            self.encoding, prompts=replace(self.asked.prompts, chat=prompts.chat)
        )
        self.encoding.max_length = longest

    @property
    def identity(self) -> dict[str, Any]:
        return self.asked.identity

    def fits(self, example: QAExample) -> bool:
        (prompt,) = question_prompts([example], self.encoding.prompts, answers=False)
        (row,) = self.asked.model.tokens.prompts([self.asked.model.tokens.text(prompt.messages)])
        return len(row) <= self.encoding.max_length

    def answers(self, examples: Sequence[QAExample], what: str = "answering") -> Iterator[Answer]:
        return self.asked.answers(examples, what)

    def subject_scores(self, groups: Sequence[Group], what: str = "scoring groups") -> Tensor:
        return self.asked.subject_scores(groups, what)

    def choice_logits(
        self, questions: Sequence[ChoiceQuestion], what: str = "choosing"
    ) -> list[np.ndarray]:
        return self.asked.choice_logits(questions, what)
