"""The interface of language models, and what those have in common whose prompts are tokenised here:
on this machine, or at a server that reads token ids.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, TypeVar

T = TypeVar("T")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class TextFailure:
    """A prompt without an answer."""

    reason: str
    """One of a few fixed reasons, so that failures can be counted."""
    detail: str = ""
    """Details of this failure."""

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


Reply = str | TextFailure
EMPTY = TextFailure("empty answer")
THINKING = r"(?:\w+:)?think(?:ing)?|thought|reasoning"
OPENED = rf"<(?:{THINKING})>|\[THINK\]|◁think▷|<\|begin_of_thought\|>"
CLOSED = rf"</(?:{THINKING})>|\[/THINK\]|◁/think▷|<\|end_of_thought\|>"
"""The tokens around a chain of thought, in the notations of several families of models."""


def reply(text: str) -> Reply:
    """Return a model's text without its chain of thought, which a template may have opened in the
    prompt; a failure if nothing is left, or the thinking does not end.

    >>> reply("<think>Rome? No.</think>\\n\\nParis."), reply("<think>Rome? No.").reason
    ('Paris.', 'unfinished thinking')
    """
    answer = re.split(CLOSED, text)[-1].strip()
    if re.search(OPENED, answer):
        return TextFailure("unfinished thinking")
    return answer or EMPTY


Prompt = str | list[dict[str, str]]
"""A text, or the messages of a chat, each with its `role` and `content`."""
Prompts = Sequence[Prompt]
Requests = Sequence[tuple[Prompt, Sequence[str]]]
"""Prompts, and the texts that may follow each."""
Rows = Sequence[Sequence[int]]
"""Token ids of several texts."""
Ids = tuple[int, ...]
Unit = tuple[Ids, tuple[Ids, ...]]
"""Token ids of a prompt, and of the texts that may follow it."""
Units = Sequence[Unit]
LogProbs = Sequence[float] | TextFailure
Totals = list[tuple[float, int]] | TextFailure
"""The log-probability and the number of tokens of several texts, or why there are none."""


class TextModel(ABC):
    """Any model that answers prompts; it raises ValueError for what it does not support."""

    name: str
    """How messages call it; for an endpoint `openai:MODEL@BASE_URL` (never a key)."""
    identity: dict[str, Any]
    """Everything except the prompt that changes answers (not batch size or device): the key under
    which answers are stored. A local model's has neither its name nor its path.
    """
    is_seq2seq: bool = False
    space: str = ""
    """The white space between a prompt and its answer."""

    @abstractmethod
    def complete(self, prompts: Prompts) -> Iterator[Reply]:
        """Yield one answer per prompt, never empty, in order, as soon as it and all before it are
        complete.

        Raises ValueError if no prompt can succeed (a wrong key, an unknown model).
        """

    def next_token_logprobs(
        self, prompts: Prompts, labels: Sequence[str], *, after: str = "", top: int = 0
    ) -> Iterator[LogProbs]:
        """For each prompt, in order, yield the log-probability, in nats, that its continuation
        begins with each label; -inf for a label that the model does not report.

        Args:
            prompts: the texts to read.
            labels: words, of which the first token counts.
            after: the end of all prompts (such as `Category:`), after which the labels are
                tokenised.
            top: count only labels among this many most probable tokens; 0 for all that the model
                reports.

        Raises:
            ValueError: two labels begin with the same token, or the model reports no probabilities.
        """
        raise ValueError(f"{self.name} gives no probabilities of the next token")

    def log_likelihoods(self, requests: Requests) -> Iterator[Totals]:
        """For each prompt and the texts that may follow it, in order, yield log P(text | prompt),
        in nats, and the number of tokens, of every text.
        """
        raise ValueError(
            f"{self.name} cannot score given texts; add --tokenizer, or choose hf:PATH"
        )


class TokenModel(TextModel):
    """A causal or sequence-to-sequence model with its tokenizer."""

    tokens: Any
    """The tokenizer, as `interventune.data_modules.encoding.prompts.PromptTokens`."""
    max_new_tokens: int
    limit: int | None
    """Number of positions; None if they are relative or unknown."""

    @abstractmethod
    def write(self, rows: Rows) -> Iterable[Reply]:
        """Yield the text that follows each prompt, in order."""

    @abstractmethod
    def score(self, units: Units) -> Iterable[LogProbs]:
        """Yield the log-probabilities of each prompt's texts, in order."""

    @abstractmethod
    def token_logprobs(self, rows: Rows, tokens: list[int], top: int) -> Iterable[LogProbs]:
        """Yield the log-probabilities of tokens after each prompt, in order; with `top`, see
        `next_token_logprobs`.
        """

    def complete(self, prompts: Prompts) -> Iterator[Reply]:
        """Yield only the new text, without special tokens. Prompts that leave no room in the
        model's context fail.
        """
        return self.continued(self.prompt_ids(prompts))

    def continued(self, rows: Rows) -> Iterator[Reply]:
        """Yield the text that follows each prompt, given by its token ids, as `complete` does."""
        return fitting([self.misfit(row, self.max_new_tokens) or row for row in rows], self.write)

    def next_token_logprobs(
        self, prompts: Prompts, labels: Sequence[str], *, after: str = "", top: int = 0
    ) -> Iterator[LogProbs]:
        log_probs = partial(self.token_logprobs, tokens=self.first_tokens(labels, after), top=top)
        return fitting([self.misfit(row, 0) or row for row in self.prompt_ids(prompts)], log_probs)

    def log_likelihoods(self, requests: Requests) -> Iterator[Totals]:
        """Score the tokens of texts.

        A causal model reads prompt and text as one, so a text includes its leading space, and white
        space at the end of the prompt moves to it. Its tokens are those after the prompt's, as in
        lm-evaluation-harness; if a token spans the boundary, the text is tokenised alone. An end
        token is not counted. A sequence-to-sequence model reads the prompt and generates the text,
        including the end token that it was trained to write. A prompt is read once for all its
        texts. A text without tokens is a failure, and one that does not fit the model's context.
        """

        def counted(units: Units) -> Iterator[Totals]:
            for (_, texts), answer in zip(units, self.score(units), strict=True):
                if isinstance(answer, TextFailure):
                    yield answer
                else:
                    yield [*zip(answer, map(len, texts), strict=True)]

        return fitting([*self._units(requests)], counted)

    def prompt_ids(self, prompts: Prompts) -> Rows:
        """Return the token ids of prompts."""
        rows: Rows = self.tokens.prompts([*map(self.tokens.text, prompts)])
        return rows

    def misfit(self, prompt: Sequence[int], new: int) -> TextFailure | None:
        """Why a prompt and a text of `new` tokens cannot be read; None if they can."""
        if not prompt:
            return TextFailure("empty prompt")
        # In a causal model, the text's positions follow the prompt's.
        needed = max(len(prompt), new) if self.is_seq2seq else len(prompt) + new
        if self.limit is None or needed <= self.limit:
            return None
        detail = f"{len(prompt)} tokens and {new} new ones, where the model takes {self.limit}"
        return TextFailure("longer than the model's context", detail)

    def first_tokens(self, labels: Sequence[str], after: str) -> list[int]:
        """Return the first token of each label after prompts that end with `after`.

        Raises:
            ValueError: a label has no token, or two begin with the same one.
        """
        context = "" if self.is_seq2seq or self.tokens.chat else after
        label_of = dict[int, str]()
        rows = self.tokens.after([context] * len(labels), labels)
        for label, ids in zip(labels, rows, strict=True):
            if not ids:
                raise ValueError(f"the label word {label!r} has no tokens; choose another word")
            first = label_of.setdefault(ids[0], label)
            if first != label:
                raise ValueError(
                    f"the label words {first!r} and {label!r} begin with the same token, so their "
                    "probabilities cannot be told apart; choose other words"
                )
        return list(label_of)

    def _units(self, requests: Requests) -> Iterator[Unit | TextFailure]:
        """The units of requests, or why a text cannot be scored."""
        befores = list[str]()
        contexts = list[str]()
        continuations = list[str]()
        for prompt, texts in requests:
            before = self.tokens.text(prompt)
            space = ""
            if not (self.is_seq2seq or self.tokens.chat):  # the white space goes to the texts
                space = before[len(before.rstrip()) :]
                before = before.rstrip()
            befores.append(before)
            contexts += [before] * len(texts)
            continuations += [space + text for text in texts]
        rows = map(tuple, self.tokens.after(contexts, continuations))
        for row, (_, texts) in zip(self.tokens.prompts(befores), requests, strict=True):
            ids = tuple(islice(rows, len(texts)))
            if () in ids:
                yield TextFailure(f"the continuation {texts[ids.index(())]!r} has no tokens")
            else:
                yield self.misfit(row, max(map(len, ids))) or (tuple(row), ids)


def fitting(
    requests: Sequence[T | TextFailure], ask: Callable[[list[T]], Iterable[Answer]]
) -> Iterator[Answer | TextFailure]:
    """Yield the answers to all requests, in order; those that are failures already remain so."""
    answers = iter(ask([request for request in requests if not isinstance(request, TextFailure)]))
    for request in requests:
        yield request if isinstance(request, TextFailure) else next(answers)


def packed(items: Iterable[T], size: Callable[[T], int], most: int) -> list[list[T]]:
    """Divide items, in order, into lists of at most `most` in size; a larger item is a list of its
    own.

    >>> packed(["a", "bc", "def", "g"], len, 3)
    [['a', 'bc'], ['def'], ['g']]
    """
    packs = list[list[T]]()
    room = -1
    for item in items:
        room -= size(item)
        if room < 0:
            packs.append([])
            room = most - size(item)
        packs[-1].append(item)
    return packs
