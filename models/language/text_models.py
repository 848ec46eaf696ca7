"""The interface of language models, local or at an endpoint."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class TextFailure:
    """A prompt without an answer."""

    reason: str
    """One of a few fixed reasons, so that failures can be counted."""
    detail: str = ""
    """Details of this failure."""

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


class PairError(ValueError):
    """A prompt and a continuation that cannot be scored; `pair` is their index in the call."""

    def __init__(self, pair: int, reason: str) -> None:
        super().__init__(f"pair {pair}: {reason}")
        self.pair, self.reason = pair, reason


class TextModel(ABC):
    """Any model that answers prompts; it raises ValueError for what it does not support."""

    name: str
    """`openai:MODEL@BASE_URL` (never a key) or `hf:PATH`."""
    identity: dict[str, Any]
    """The name, and everything except the prompt that changes answers (not batch size or device): the key
    under which answers are stored."""
    is_seq2seq: bool
    chat: bool
    """Whether prompts are presented as a user's turn; other models continue their prompts."""

    @abstractmethod
    def complete(self, prompts: Sequence[str]) -> Iterator[str | TextFailure]:
        """Yield one answer per prompt, never empty, in order, as soon as it and all before it are complete.

        Raises ValueError if no prompt can succeed (a wrong key, an unknown model).
        """

    def next_token_logprobs(
        self, prompts: Sequence[str], labels: Sequence[str], *, after: str = "", top: int = 0
    ) -> Iterator[tuple[float, ...] | TextFailure]:
        """For each prompt, in order, yield the log-probability, in nats, that its continuation begins with
        each label; -inf for a label that the model does not report.

        Args:
            prompts: the texts to read.
            labels: words, of which the first token counts.
            after: the end of all prompts (such as `Category:`), after which the labels are tokenised.
            top: count only labels among this many most probable tokens; 0 for all that the model reports.

        Raises:
            ValueError: two labels begin with the same token, or the model reports no probabilities.
        """
        raise ValueError(f"{self.name} gives no probabilities of the next token")

    def log_likelihoods(self, pairs: Sequence[tuple[str, str]]) -> tuple[Tensor, Tensor]:
        """log P(continuation | prompt) for (prompt, continuation) pairs, in nats, (N,) float64; and the
        number of tokens of each continuation, (N,).

        Raises:
            PairError: a pair cannot be scored.
        """
        raise ValueError(
            f"{self.name} cannot score given texts; choose a local model (hf:FOLDER_OR_HUB_NAME)"
        )
