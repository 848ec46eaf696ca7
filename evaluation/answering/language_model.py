"""Language models as answerers: questions become prompts, and the model's text becomes a short
answer.

    --checkpoint base=hf:google/flan-t5-base gpt=openai:gpt-4o-mini
    --checkpoint uqa=hf:allenai/unifiedqa-t5-base --prompt unifiedqa

A local model also scores given texts, which group bias and multiple choice need; most endpoints
only generate.

Shape letters: N groups, V the four variants, S the two subjects, C choices, K scored texts of a
prompt, M (prompt, continuation) pairs.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from string import ascii_uppercase
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM

from interventune.data_modules.encoding.prompts import PromptTokens, group_prompts, question_prompts
from interventune.data_modules.encoding.replies import answer_in
from interventune.data_modules.encoding.tokenizers import load_tokenizer
from interventune.data_modules.encoding.windows import Messages, Prompts
from interventune.data_modules.schema.groups import Group
from interventune.data_modules.schema.questions import ChoiceQuestion, QAExample
from interventune.models.backbones import pick_device
from interventune.models.heads.causal import CausalModel
from interventune.models.kernels import use_linear_kernels
from interventune.models.language.local_model import LocalTextModel
from interventune.models.language.text_models import PairError, Prompt, TextFailure, TextModel
from interventune.models.loading import read_folder
from interventune.storage.errors import DataError
from interventune.storage.progress import progress

from . import prompts as styles
from .asking import Compute
from .checkpoint import (
    Held,
    QuestionCheckpoint,
    weights_type,
)
from .interface import (
    Answer,
    Answerer,
    ChoicePrompt,
    Choosing,
    kind_of,
)
from .work import shared, stored

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
    kind, local = kind_of(path), path.removeprefix("hf:")
    limits = {"max_new_tokens": max_new_tokens, "batch_size": compute.batch_size}
    if kind == "causal":
        return Decoder(path, Choosing(**{**vars(compute), **limits, "chat": chat})).writer
    if kind != "seq2seq":
        raise ValueError(
            f"{path}: is no language model; name a decoder, hf:PATH or openai:MODEL[@URL]"
        )
    model, _ = read_folder(AutoModelForSeq2SeqLM, local, dtype=weights_type(compute))
    model = model.to(pick_device(compute.device))
    return local_model(path, model, load_tokenizer(local), chat, **limits)


def local_model(
    path: str, model: Any, tokenizer: Any, chat: Literal["auto", "never"], **options: Any
) -> LocalTextModel:
    """Make a text model of a model of transformers; `options` are those of `LocalTextModel`."""
    if model.device.type == "cpu" and not options.get("weights"):
        use_linear_kernels(model)
    tokens = PromptTokens(tokenizer, chat, seq2seq=model.config.is_encoder_decoder)
    return LocalTextModel(model, tokens, path, **options)


class LanguageModel(Answerer):
    """A language model that answers questions, scores subjects, and chooses.

    Args:
        path: its name on the command line.
        asking: how it is queried.
        writer: the opened model (default: `open_text_model`).
        prompts: those of its training, which `--prompt auto` means.
    """

    def __init__(
        self,
        path: str,
        asking: Choosing,
        writer: TextModel | None = None,
        prompts: Prompts | None = None,
    ) -> None:
        if writer is None:
            longest, chat = asking.max_new_tokens, chat_of(asking)
            writer = open_text_model(path, asking, max_new_tokens=longest, chat=chat)
        self.path, self.writer = path, writer
        if asking.choice_prompt == "auto":
            style: ChoicePrompt = "unifiedqa" if writer.is_seq2seq else "plain"
            asking = replace(asking, choice_prompt=style)
        self.asking, self.by_letter = asking, asking.choice_prompt == "letters"
        self.prompts: Prompts = styles.STYLES.get(asking.prompt) or prompts or Prompts()
        self.candidates = 2 if writer.is_seq2seq else self.prompts.candidates
        """Number of texts that are scored for a question between two subjects."""
        self.offers_unknown = self.candidates == 3

    @property
    def identity(self) -> dict[str, Any]:
        return {
            **self.writer.identity,
            "prompts": asdict(self.prompts),
            "lower": self.asking.prompt == "unifiedqa",
            "choosing": [styles.CHOICES[self.asking.choice_prompt], self.asking.likelihood],
        }

    def answers(self, examples: Sequence[QAExample], what: str = "answering") -> Iterator[Answer]:
        prompts = question_prompts(examples, self.prompts, answers=False)
        messages = [self.in_style(prompt.messages) for prompt in prompts]
        # Similar lengths together.
        order = sorted(range(len(messages)), key=lambda i: -len(str(messages[i])))
        texts = self.complete([messages[i] for i in order])
        bar = progress(texts, what, "question", len(order))
        for i, text in zip(order, bar, strict=True):
            if isinstance(text, TextFailure):
                yield Answer(i, "", text.reason)
            else:
                yield Answer(i, *answer_in(text))

    def in_style(self, messages: Messages) -> Messages:
        """Return messages in the form of the style."""
        return [
            {**message, "content": styles.in_style(message["content"], self.asking.prompt)}
            for message in messages
        ]

    @stored
    def complete(self, prompts: Sequence[Prompt]) -> Iterator[str | TextFailure]:
        return self.writer.complete(prompts)

    @shared
    def subject_scores(self, groups: Sequence[Group], what: str = "scoring groups") -> Tensor:
        """S(x) of a causal model is its share of the probability of the subjects (and of unknown,
        if the prompt offers it), as in training: the softmax over the mean log-likelihoods of their
        tokens. Of a sequence-to-sequence model it is the geometric mean of the tokens'
        probabilities. Neither falls with the number of tokens. (Zhao et al. 2021, appendix C, name
        the encoding but no score.) Options are in the order of the context, so a preference for a
        position cancels over the two orders.
        """
        parts, K = [torch.empty(0, 4, 2, dtype=torch.float64)], self.candidates
        for start in progress(range(0, len(groups), GROUPS_AT_ONCE), what):
            chunk = groups[start : start + GROUPS_AT_ONCE]
            pairs = [
                (self.in_style(prompt.messages), text)
                for prompt in group_prompts(chunk, self.prompts)
                for text in prompt.continuations[:K]
            ]
            try:
                total_M, count_M = self.likelihoods(pairs, self.asking.prompt)
            except PairError as error:
                group = chunk[error.pair // (4 * K)]
                raise DataError(f"group {group.key}: {error.reason}") from None
            log_score_NVK = (total_M / count_M).view(len(chunk), 4, K)
            if not self.writer.is_seq2seq:
                log_score_NVK = log_score_NVK.log_softmax(-1)
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
        bar = progress(scores, what, "question", len(questions))
        return [np.array(logit_C, dtype=np.float32) for logit_C in bar]

    @stored
    def text_scores(self, questions: Sequence[ChoiceQuestion]) -> Iterable[list[float]]:
        style, counts = self.asking.choice_prompt, [len(q.choices) for q in questions]
        choices = [(question, choice) for question in questions for choice in question.choices]
        pairs = [(styles.choice_prompt(q, style), choice.strip()) for q, choice in choices]
        try:
            score_M, count_M = self.likelihoods(pairs, style)
        except PairError as error:
            raise DataError(f"question {choices[error.pair][0].id}: {error.reason}") from None
        if self.asking.likelihood == "mean":
            score_M = score_M / count_M
        return [score_C.tolist() for score_C in score_M.split(counts)]

    @stored
    def letter_scores(self, questions: Sequence[ChoiceQuestion]) -> Iterable[list[float]]:
        most = max(len(question.choices) for question in questions)
        labels = [f"{self.writer.space}{letter}" for letter in ascii_uppercase[:most]]
        prompts = [styles.choice_prompt(q, self.asking.choice_prompt) for q in questions]
        answers = self.writer.next_token_logprobs(prompts, labels, after="Answer:")
        for question, answer in zip(questions, answers, strict=True):
            if isinstance(answer, TextFailure):
                raise DataError(f"question {question.id}: {answer}")
            yield [max(score, UNREPORTED) for score in answer[: len(question.choices)]]

    def likelihoods(self, pairs: Sequence[tuple[Prompt, str]], style: str) -> tuple[Tensor, Tensor]:
        """Return the log-likelihood of texts after their prompts, and the number of tokens: (M,)
        each.
        """
        space = self.writer.space
        total_M, count_M = self.writer.log_likelihoods(
            [(prompt, space + styles.in_style(text, style)) for prompt, text in pairs]
        )
        self.require_finite(total_M.abs())
        return total_M, count_M


def chat_of(asking: Choosing) -> Literal["auto", "never"]:
    """Return whether prompts may use a chat template; lm-evaluation-harness's do not."""
    return "never" if asking.choice_prompt == "question" else asking.chat


class Decoder(LanguageModel, QuestionCheckpoint):
    """A causal model: it answers, scores and chooses as a language model, and shows its hidden
    states.
    """

    kind = CausalModel

    def __init__(self, path: str, asking: Choosing, held: Held | None = None) -> None:
        QuestionCheckpoint.__init__(self, path, asking, held)
        prompts: Prompts = self.encoding.prompts
        if chat_of(asking) == "never":
            prompts = replace(prompts, chat="never")
        writer = local_model(
            path,
            self.model.encoder,
            self.tokenizer,
            prompts.chat,
            weights=self.digest,
            max_new_tokens=asking.max_new_tokens,
            batch_size=asking.batch_size,
        )
        LanguageModel.__init__(self, path, asking, writer, prompts)
        self.tokens = writer.tokens
        # Rows of hidden states are limited by the model alone.
        longest = self.model.max_tokens or sys.maxsize
        self.encoding = replace(self.encoding, prompts=replace(self.prompts, chat=prompts.chat))
        self.encoding.max_length = longest

    def fits(self, example: QAExample) -> bool:
        (prompt,) = question_prompts([example], self.encoding.prompts, answers=False)
        (row,) = self.tokens.prompts([self.tokens.text(prompt.messages)])
        return len(row) <= self.encoding.max_length
