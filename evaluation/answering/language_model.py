"""Language models as answerers: questions become prompts, and the model's text becomes a short
answer.

    --checkpoint base=hf:google/flan-t5-base gpt=openai:gpt-4o-mini
    --checkpoint uqa=hf:allenai/unifiedqa-t5-base --prompt unifiedqa

A local model also scores given texts, which group bias and multiple choice need; an endpoint does
so with --tokenizer.

Shape letters: N groups, V the four variants, S the two subjects, C choices, K scored texts of a
prompt, E a log-likelihood and its number of tokens.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from string import ascii_uppercase
from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM

from interventune.data_modules.encoding.prompts import (
    CHOOSE,
    PromptTokens,
    answer_in,
    group_prompts,
    question_prompts,
)
from interventune.data_modules.encoding.tokenizers import load_tokenizer
from interventune.data_modules.encoding.windows import Messages, Prompts
from interventune.data_modules.schema.groups import Group
from interventune.data_modules.schema.questions import Answer, ChoiceQuestion, QAExample
from interventune.models.backbones import pick_device
from interventune.models.heads.causal import CausalModel
from interventune.models.kernels import use_linear_kernels
from interventune.models.language.local_model import LocalTextModel
from interventune.models.language.text_models import Prompt, TextFailure, TextModel
from interventune.models.loading import read_folder
from interventune.storage.documents import DataError, own_yaml
from interventune.storage.progress import progress

from .checkpoint import Held, QuestionCheckpoint, weights_type
from .interface import Answerer, Asking, ChoicePrompt, Choosing, kind_of
from .work import stored

T = TypeVar("T")
STYLES = own_yaml(__file__, dict[str, Prompts], "prompts.yaml")
"""Prompts by the name of their style."""
CHOICES: dict[ChoicePrompt, str] = {
    # Each choice is scored separately after the same prompt: other choices and their order do not
    # matter.
    "plain": CHOOSE,
    # lm-evaluation-harness's prompt for PIQA, and its score with --likelihood sum.
    "question": "Question: {prompt}\nAnswer:",
    "letters": "{prompt}\n{choices}\nAnswer:",
    "unifiedqa": "{prompt} \\n {choices}",
}
"""Templates of a multiple-choice question; {choices} are lettered."""
UNREPORTED = -100.0
"""The log-probability of a letter outside the most probable tokens."""
Request = tuple[str, Prompt, list[str]]
"""The name of a record, for errors; a prompt; and the texts to score after it."""


def in_style(text: str, style: str) -> str:
    """Return the text in a style's form: UnifiedQA uses lower case."""
    return text.lower() if style == "unifiedqa" else text


def choice_prompt(example: ChoiceQuestion, style: ChoicePrompt) -> str:
    """Return a language model's prompt for a choice.

    Raises:
        DataError: there are more choices than letters.

    >>> example = ChoiceQuestion("1", "Why?", ("This", "That"), 0)
    >>> choice_prompt(example, "unifiedqa")
    'why? \\\\n (a) this (b) that'
    """
    template = CHOICES[style]
    choices = ""
    if "{choices}" in template:
        if len(example.choices) > len(ascii_uppercase):
            raise DataError(
                f"question {example.id}: {len(example.choices)} choices are more than letters"
            )
        line, join = ("{}. {}", "\n") if style == "letters" else ("({}) {}", " ")
        choices = join.join(map(line.format, ascii_uppercase, map(str.strip, example.choices)))
    return in_style(template.format(prompt=example.prompt.strip(), choices=choices).strip(), style)


def open_text_model(path: str, asking: Asking) -> TextModel:
    """Open a language model: at an endpoint (`openai:`), or a `.ckpt`, folder or Hub name.
    ValueError: there is no such model.
    """
    if path.startswith("openai:"):
        from interventune.models.language.endpoint import ChatModel
        from interventune.models.language.served import ServedModel

        options: Any = {"max_new_tokens": asking.max_new_tokens, "parallel": asking.parallel}
        name = path.removeprefix("openai:")
        if not asking.tokenizer:
            return ChatModel(name, **options)
        return ServedModel(
            name, PromptTokens(load_tokenizer(asking.tokenizer), asking.chat), **options
        )
    kind = kind_of(path)
    local = path.removeprefix("hf:")
    if kind == "causal":
        return Decoder(path, Choosing(**vars(asking))).writer
    if kind != "seq2seq":
        raise ValueError(
            f"{path}: is no language model; name a decoder, hf:PATH or openai:MODEL[@URL]"
        )
    model, _ = read_folder(AutoModelForSeq2SeqLM, local, dtype=weights_type(asking))
    return local_model(path, model.to(pick_device(asking.device)), load_tokenizer(local), asking)


def local_model(
    path: str, model: Any, tokenizer: Any, asking: Asking, weights: str = ""
) -> LocalTextModel:
    """Make a text model of a model of transformers; `weights` is a digest of the model in
    training.
    """
    if model.device.type == "cpu" and not weights:
        use_linear_kernels(model)
    return LocalTextModel(
        model,
        PromptTokens(tokenizer, asking.chat, seq2seq=model.config.is_encoder_decoder),
        path,
        max_new_tokens=asking.max_new_tokens,
        batch_size=asking.batch_size,
        weights=weights,
    )


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
        self.path = path
        self.writer = writer or open_text_model(path, asking)
        if asking.choice_prompt == "auto":
            style: ChoicePrompt = "unifiedqa" if self.writer.is_seq2seq else "plain"
            asking = replace(asking, choice_prompt=style)
        self.asking = asking
        self.prompts: Prompts = STYLES.get(asking.prompt) or prompts or Prompts()
        self.candidates = 2 if self.writer.is_seq2seq else self.prompts.candidates
        """Number of texts that are scored for a question between two subjects."""
        self.offers_unknown = self.candidates == 3

    @property
    def identity(self) -> dict[str, Any]:
        return {
            **self.writer.identity,
            "prompts": asdict(self.prompts),
            "lower": self.asking.prompt == "unifiedqa",
            "choosing": [CHOICES[self.asking.choice_prompt], self.asking.likelihood],
        }

    def answers(self, examples: Sequence[QAExample], what: str = "answering") -> Iterator[Answer]:
        prompts = question_prompts(examples, self.prompts, answers=False)
        messages = [self.in_style(prompt.messages) for prompt in prompts]
        # Similar lengths together.
        order = sorted(range(len(messages)), key=lambda i: -len(str(messages[i])))
        texts = self.complete([messages[i] for i in order])
        for i, text in zip(order, progress(texts, what, "question", len(order)), strict=True):
            reason = text.reason if isinstance(text, TextFailure) else ""
            answer, failure = answer_in(str(text), reason)
            yield Answer(i, answer, failure=failure)

    def in_style(self, messages: Messages) -> Messages:
        """Return messages in the form of the style."""
        return [
            {**message, "content": in_style(message["content"], self.asking.prompt)}
            for message in messages
        ]

    @stored
    def complete(self, prompts: Sequence[Prompt]) -> Iterator[str | TextFailure]:
        return self.writer.complete(prompts)

    def subject_scores(self, groups: Sequence[Group], what: str = "scoring groups") -> Tensor:
        """S(x) of a causal model is its share of the probability of the subjects (and of unknown,
        if the prompt offers it), as in training: the softmax over the mean log-likelihoods of their
        tokens. Of a sequence-to-sequence model it is the geometric mean of the tokens'
        probabilities. Neither falls with the number of tokens. (Zhao et al. 2021, appendix C, name
        the encoding but no score.) Options are in the order of the context, so a preference for a
        position cancels over the two orders.
        """
        requests = [
            self.request(
                f"group {prompt.name}",
                self.in_style(prompt.messages),
                prompt.continuations[: self.candidates],
                self.asking.prompt,
            )
            for prompt in group_prompts(groups, self.prompts)
        ]
        answers = progress(self.likelihoods(requests), what, "prompt", len(requests))
        score_NVKE = torch.tensor([*answered(answers)], dtype=torch.float64)
        score_NVKE = score_NVKE.view(len(groups), 4, self.candidates, 2)
        log_score_NVK = score_NVKE[..., 0] / score_NVKE[..., 1]
        if not self.writer.is_seq2seq:
            log_score_NVK = log_score_NVK.log_softmax(-1)
        return log_score_NVK[..., :2].exp()

    def choice_scores(self, questions: Sequence[ChoiceQuestion]) -> Iterable[list[float]]:
        """Yield the log-likelihood of each choice after the prompt, or the log-probability of its
        letter. DataError names a question whose text has no tokens or does not fit the model's
        context, or that is not answered.
        """
        style = self.asking.choice_prompt
        if style == "letters":
            return answered(self.letter_scores(questions))
        requests = [
            self.request(
                f"question {question.id}",
                choice_prompt(question, style),
                [choice.strip() for choice in question.choices],
                style,
            )
            for question in questions
        ]
        mean = self.asking.likelihood == "mean"
        return (
            [total / count if mean else total for total, count in texts]
            for texts in answered(self.likelihoods(requests))
        )

    @stored
    def letter_scores(
        self, questions: Sequence[ChoiceQuestion]
    ) -> Iterator[list[float] | TextFailure]:
        most = max(len(question.choices) for question in questions)
        labels = [f"{self.writer.space}{letter}" for letter in ascii_uppercase[:most]]
        prompts = [choice_prompt(q, self.asking.choice_prompt) for q in questions]
        answers = self.writer.next_token_logprobs(prompts, labels, after="Answer:")
        names = [f"question {question.id}" for question in questions]
        for question, answer in zip(questions, every_answer(names, answers), strict=True):
            if isinstance(answer, TextFailure):
                yield answer
            else:
                yield [max(score, UNREPORTED) for score in answer[: len(question.choices)]]

    def request(self, name: str, prompt: Prompt, texts: Sequence[str], style: str) -> Request:
        """Make a request for `likelihoods`."""
        return name, prompt, [self.writer.space + in_style(text, style) for text in texts]

    @stored
    def likelihoods(
        self, requests: Sequence[Request]
    ) -> Iterator[list[tuple[float, int]] | TextFailure]:
        """Yield the log-likelihood of every text after its prompt, and its number of tokens."""
        answers = self.writer.log_likelihoods([(prompt, texts) for _, prompt, texts in requests])
        for answer in every_answer([name for name, *_ in requests], answers):
            if not isinstance(answer, TextFailure):
                self.require_finite(torch.tensor(answer).abs())
            yield answer


def every_answer(
    names: Sequence[str], answers: Iterable[T | TextFailure]
) -> Iterator[T | TextFailure]:
    """Yield all answers, so that they are stored, before a DataError that names the first request
    that failed.
    """
    failures = list[str]()
    for name, answer in zip(names, answers, strict=True):
        if isinstance(answer, TextFailure):
            failures.append(f"{name}: {answer}")
        yield answer
    if failures:
        raise DataError(failures[0])


def answered(answers: Iterable[T | TextFailure]) -> Iterator[T]:
    """Yield the answers that are no failures."""
    return (answer for answer in answers if not isinstance(answer, TextFailure))


class Decoder(LanguageModel, QuestionCheckpoint):
    """A causal model: it answers, scores and chooses as a language model, and shows its hidden
    states.
    """

    kind = CausalModel

    def __init__(self, path: str, asking: Choosing, held: Held | None = None) -> None:
        QuestionCheckpoint.__init__(self, path, asking, held)
        prompts: Prompts = self.encoding.prompts
        if asking.chat == "never":
            prompts = replace(prompts, chat="never")
        asking = replace(asking, chat=prompts.chat)
        writer = local_model(path, self.model.encoder, self.tokenizer, asking, self.digest)
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
