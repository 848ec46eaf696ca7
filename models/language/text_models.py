"""The interface of language models, local or at an endpoint."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TextFailure:
    """A prompt without an answer."""

    reason: str
    """One of a few fixed reasons, so that failures can be counted."""
    detail: str = ""
    """Details of this failure."""

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


EMPTY = TextFailure("empty answer")
THINKING = r"(?:\w+:)?think(?:ing)?|thought|reasoning"
OPENED = rf"<(?:{THINKING})>|\[THINK\]|◁think▷|<\|begin_of_thought\|>"
CLOSED = rf"</(?:{THINKING})>|\[/THINK\]|◁/think▷|<\|end_of_thought\|>"
"""The tokens around a chain of thought, in the notations of several families of models."""


def reply(text: str) -> str | TextFailure:
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
    def complete(self, prompts: Sequence[Prompt]) -> Iterator[str | TextFailure]:
        """Yield one answer per prompt, never empty, in order, as soon as it and all before it are
        complete.

        Raises ValueError if no prompt can succeed (a wrong key, an unknown model).
        """

    def next_token_logprobs(
        self, prompts: Sequence[Prompt], labels: Sequence[str], *, after: str = "", top: int = 0
    ) -> Iterator[Sequence[float] | TextFailure]:
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

    def log_likelihoods(
        self, requests: Sequence[tuple[Prompt, Sequence[str]]]
    ) -> Iterator[list[tuple[float, int]] | TextFailure]:
        """For each prompt and the texts that may follow it, in order, yield log P(text | prompt),
        in nats, and the number of tokens, of every text.
        """
        raise ValueError(
            f"{self.name} cannot score given texts; add --tokenizer, or choose hf:PATH"
        )
