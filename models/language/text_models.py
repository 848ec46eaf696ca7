"""The interface of language models, on this machine or behind an endpoint."""

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
    """One of a few, so that failures can be counted."""
    detail: str = ""
    """What was special about this one."""

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


class PairError(ValueError):
    """A prompt and a continuation that cannot be scored; `pair` is their number among those asked."""

    def __init__(self, pair: int, reason: str) -> None:
        super().__init__(f"pair {pair}: {reason}")
        self.pair, self.reason = pair, reason


class TextModel(ABC):
    """Anything that answers prompts. What it cannot do is a ValueError."""

    name: str
    """`openai:MODEL@BASE_URL` (never a key) or `hf:PATH`."""
    identity: dict[str, Any]
    """The name, and all else that changes answers besides the prompt (neither batch size nor device): the key
    under which they are remembered."""
    is_seq2seq: bool
    chat: bool
    """Whether prompts become a user's turn. A model of neither kind continues its prompts."""

    @abstractmethod
    def complete(self, prompts: Sequence[str]) -> Iterator[str | TextFailure]:
        """One answer a prompt, never empty, in order, each as soon as it and all before it are there.

        Raises ValueError where no prompt can succeed (a wrong key, an unknown model).
        """

    def next_token_logprobs(
        self, prompts: Sequence[str], labels: Sequence[str], *, after: str = "", top: int = 0
    ) -> Iterator[tuple[float, ...] | TextFailure]:
        """For each prompt, in order, the log-probability that what follows begins with each of the labels, in
        nats; -inf for a label that the model does not report.

        Args:
            prompts: what the model reads.
            labels: words of which the first token counts.
            after: the end of all prompts (such as `Category:`), behind which the labels are tokenised.
            top: only labels among so many most probable tokens count; 0 for all that the model reports.

        Raises:
            ValueError: two labels begin with the same token, or the model reports no probabilities.
        """
        raise ValueError(f"{self.name} gives no probabilities of the next token")

    def log_likelihoods(self, pairs: Sequence[tuple[str, str]]) -> tuple[Tensor, Tensor]:
        """log P(continuation | prompt) for (prompt, continuation) pairs, in nats: (N,) float64; and how many
        tokens the continuations have, (N,).

        Raises:
            PairError: a pair cannot be scored.
        """
        raise ValueError(
            f"{self.name} cannot score given texts; choose a local model (hf:FOLDER_OR_HUB_NAME)"
        )
