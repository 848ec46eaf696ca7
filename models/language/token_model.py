"""Language models whose prompts are tokenised here: on this machine, or at a server that reads
token ids.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from .text_models import Prompt, TextFailure, TextModel

Request = TypeVar("Request")
Answer = TypeVar("Answer")
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
    def write(self, rows: Sequence[Ids]) -> Iterable[str | TextFailure]:
        """Yield the text that follows each prompt, in order."""

    @abstractmethod
    def score(self, units: Sequence[Unit]) -> Iterable[list[float] | TextFailure]:
        """Yield the log-probabilities of each prompt's texts, in order."""

    def complete(self, prompts: Sequence[Prompt]) -> Iterator[str | TextFailure]:
        """Yield only the new text, without special tokens. Prompts that leave no room in the
        model's context fail.
        """
        rows = self.prompt_ids(prompts)
        return fitting(rows, [self.misfit(row, self.max_new_tokens) for row in rows], self.write)

    def log_likelihoods(
        self, requests: Sequence[tuple[Prompt, Sequence[str]]]
    ) -> Iterator[list[tuple[float, int]] | TextFailure]:
        """Score the tokens of texts.

        A causal model reads prompt and text as one, so a text includes its leading space, and white
        space at the end of the prompt moves to it. Its tokens are those after the prompt's, as in
        lm-evaluation-harness; if a token spans the boundary, the text is tokenised alone. An end
        token is not counted. A sequence-to-sequence model reads the prompt and generates the text,
        including the end token that it was trained to write. A prompt is read once for all its
        texts. A text without tokens is a failure, and one that does not fit the model's context.
        """
        units = self._units(requests)
        failures = [
            self._unscorable(texts, unit) for (_, texts), unit in zip(requests, units, strict=True)
        ]
        for unit, answer in zip(units, fitting(units, failures, self.score), strict=True):
            if isinstance(answer, TextFailure):
                yield answer
            else:
                yield [(total, len(text)) for total, text in zip(answer, unit[1], strict=True)]

    def prompt_ids(self, prompts: Sequence[Prompt]) -> list[Ids]:
        """Return the token ids of prompts."""
        rows = self.tokens.prompts([self.tokens.text(prompt) for prompt in prompts])
        return [tuple(row) for row in rows]

    def misfit(self, prompt: Ids, new: int) -> TextFailure | None:
        """Why a prompt and a text of `new` tokens cannot be read; None if they can."""
        return misfit(prompt, new, self.limit, in_turn=not self.is_seq2seq)

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

    def _units(self, requests: Sequence[tuple[Prompt, Sequence[str]]]) -> list[Unit]:
        befores = list[str]()
        pairs = list[tuple[str, str]]()
        for prompt, texts in requests:
            before = self.tokens.text(prompt)
            space = ""
            if not (self.is_seq2seq or self.tokens.chat):  # the white space goes to the texts
                space = before[len(before.rstrip()) :]
                before = before.rstrip()
            befores.append(before)
            pairs += [(before, space + text) for text in texts]
        rows = iter(self.tokens.after([one for one, _ in pairs], [text for _, text in pairs]))
        return [
            (tuple(prompt), tuple(tuple(next(rows)) for _ in texts))
            for prompt, (_, texts) in zip(self.tokens.prompts(befores), requests, strict=True)
        ]

    def _unscorable(self, texts: Sequence[str], unit: Unit) -> TextFailure | None:
        """Why one of the texts after a prompt cannot be scored; None if all can."""
        prompt, rows = unit
        for text, row in zip(texts, rows, strict=True):
            if not row:
                return TextFailure(f"the continuation {text!r} has no tokens")
        return self.misfit(prompt, max(map(len, rows)))


def misfit(
    prompt: Sequence[int], new: int, limit: int | None, *, in_turn: bool = True
) -> TextFailure | None:
    """Why a prompt and a text of `new` tokens cannot be read; None if they can.

    Args:
        prompt: token ids.
        new: number of tokens.
        limit: number of positions; None if they are relative or unknown.
        in_turn: the text follows the prompt's positions, as in a causal model.
    """
    if not prompt:
        return TextFailure("empty prompt")
    needed = len(prompt) + new if in_turn else max(len(prompt), new)
    if limit is None or needed <= limit:
        return None
    detail = f"{len(prompt)} tokens and {new} new ones, where the model takes {limit}"
    return TextFailure("longer than the model's context", detail)


def fitting(
    requests: Sequence[Request],
    failures: Sequence[TextFailure | None],
    ask: Callable[[list[Request]], Iterable[Answer]],
) -> Iterator[Answer | TextFailure]:
    """Yield the answers to all requests without a failure, and the failures of the others, in
    order.
    """
    pairs = zip(requests, failures, strict=True)
    answers = iter(ask([request for request, failure in pairs if failure is None]))
    for failure in failures:
        yield failure or next(answers)
