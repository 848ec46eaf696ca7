"""Language models whose prompts are tokenised here: on this machine, or at a server that reads
token ids.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from .text_models import Prompt, TextFailure, TextModel

T = TypeVar("T")
Ids = tuple[int, ...]
Unit = tuple[Ids, tuple[Ids, ...]]
"""Token ids of a prompt, and of the texts that may follow it."""


class TokenModel(TextModel):
    """A causal or sequence-to-sequence model with its tokenizer."""

    tokens: Any
    """The tokenizer, as `interventune.data_modules.encoding.prompts.PromptTokens`."""
    max_new_tokens: int
    limit: int | None
    """Number of positions; None if they are relative or unknown."""

    @abstractmethod
    def write(self, rows: Sequence[Ids]) -> Iterator[str | TextFailure]:
        """Yield the text that follows each prompt, in order."""

    @abstractmethod
    def score(self, units: Sequence[Unit]) -> Iterator[list[float] | TextFailure]:
        """Yield the log-probabilities of each prompt's texts, in order."""

    def complete(self, prompts: Sequence[Prompt]) -> Iterator[str | TextFailure]:
        """Yield only the new text, without special tokens. Prompts that leave no room in the
        model's context fail.
        """
        rows = self._prompt_ids(prompts)
        failures = [self._misfit(len(row), self.max_new_tokens) for row in rows]
        yield from fitting(self.write, rows, failures)

    def log_likelihoods(
        self, requests: Sequence[tuple[Prompt, Sequence[str]]]
    ) -> Iterator[list[tuple[float, int]] | TextFailure]:
        """Score the tokens of texts.

        A causal model reads prompt and text as one, so a text includes its leading space, and white
        space at the end of the prompt moves to it. Its tokens are those after the prompt's, as in
        lm-evaluation-harness; if a token spans the boundary, the text is tokenised alone. An end
        token is not counted. A sequence-to-sequence model reads the prompt and generates the text,
        including the end token that it was trained to write.

        A text without tokens, or one that does not fit the model's context, is a failure.
        """
        units = self._units(requests)
        failures = [
            self._unscorable(texts, unit) for (_, texts), unit in zip(requests, units, strict=True)
        ]
        answers = fitting(self.score, units, failures)
        for (_, texts), answer in zip(units, answers, strict=True):
            if isinstance(answer, TextFailure):
                yield answer
            else:
                yield [(total, len(ids)) for total, ids in zip(answer, texts, strict=True)]

    def _prompt_ids(self, prompts: Sequence[Prompt]) -> list[Ids]:
        rows = self.tokens.prompts([self.tokens.text(prompt) for prompt in prompts])
        return [tuple(row) for row in rows]

    def _units(self, requests: Sequence[tuple[Prompt, Sequence[str]]]) -> list[Unit]:
        before, after, count = list[str](), list[tuple[str, str]](), list[int]()
        for prompt, texts in requests:
            text = self.tokens.text(prompt)
            fixed = self.is_seq2seq or self.tokens.chat
            end = len(text if fixed else text.rstrip())  # the white space goes to the texts
            before.append(text[:end])
            after += [(text[:end], text[end:] + more) for more in texts]
            count.append(len(texts))
        texts = iter(self.tokens.after(*zip(*after, strict=True)))
        return [
            (tuple(prompt), tuple(tuple(next(texts)) for _ in range(n)))
            for prompt, n in zip(self.tokens.prompts(before), count, strict=True)
        ]

    def _unscorable(self, texts: Sequence[str], unit: Unit) -> TextFailure | None:
        """Why one of the texts after a prompt cannot be scored; None if all can."""
        prompt, rows = unit
        for text, row in zip(texts, rows, strict=True):
            if not row:
                return TextFailure(f"the text {text!r} has no tokens")
        return self._misfit(len(prompt), max(map(len, rows)))

    def _misfit(self, length: int, new: int) -> TextFailure | None:
        """Why a prompt of `length` tokens and a text of `new` cannot be read; None if they can."""
        if not length:
            return TextFailure("empty prompt")
        needed = max(length, new) if self.is_seq2seq else length + new
        if self.limit is None or needed <= self.limit:
            return None
        detail = f"{length} tokens and {new} new ones, where the model takes {self.limit}"
        return TextFailure("longer than the model's context", detail)


def fitting(
    ask: Callable[[list[Any]], Iterator[Any]],
    requests: Sequence[Any],
    failures: Sequence[TextFailure | None],
) -> Iterator[Any]:
    """Yield the answers of `ask` to all requests without a failure, and the failures of the others,
    in order.
    """
    pairs = zip(requests, failures, strict=True)
    answers = iter(ask([request for request, failure in pairs if failure is None]))
    for failure in failures:
        yield failure or next(answers)
