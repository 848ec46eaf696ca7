"""Text generation behind one small interface: a local Hugging Face model, or an OpenAI-compatible endpoint.

    from models.language.text_models import open_text_model
    model = open_text_model("hf:google/flan-t5-small")
    model = open_text_model("openai:gpt-4o-mini")                         # the key from OPENAI_API_KEY
    model = open_text_model("openai:llama3@http://localhost:11434/v1")
    for text in model.complete(prompts): ...

Wrap it in `text_cache.CachedTextModel` so that nothing is asked twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

Settings = dict[str, str | int | float | bool]


@dataclass(frozen=True, slots=True)
class TextFailure:
    """A prompt without an answer."""

    reason: str
    """One of a few, so that failures can be counted."""
    detail: str = ""
    """What was special about this one."""

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


class TextModel(Protocol):
    """Anything that answers prompts; an answer is never empty."""

    @property
    def name(self) -> str:
        """What stands in records: `openai:MODEL@BASE_URL` (never a key) or `hf:PATH`."""

    @property
    def settings(self) -> Settings:
        """All that changes outputs besides the name and the prompt."""

    def complete(self, prompts: Sequence[str]) -> Iterator[str | TextFailure]:
        """One answer a prompt, in order, each as soon as it and all before it are there.

        Raises ValueError where no prompt can succeed (a wrong key, an unknown model).
        """

    def log_likelihoods(self, pairs: Sequence[tuple[str, str]]) -> Tensor:
        """log P(continuation | prompt) for (prompt, continuation) pairs: float64 of shape (N,), in nats."""

    def next_token_logprobs(
        self, prompts: Sequence[str], labels: Sequence[str], *, after: str = "", top: int = 0
    ) -> Iterator[tuple[float, ...] | TextFailure]:
        """For each prompt, in order, the log-probability that what follows begins with each of the labels, in
        nats; -inf for a label that the model does not tell.

        Args:
            prompts: what the model reads.
            labels: words of which the first token counts.
            after: the end of all prompts (such as `Category:`), behind which the labels are tokenised.
            top: only labels among so many most probable tokens count; 0 for all that the model tells.

        Raises:
            ValueError: two labels begin with the same token, or the model tells no probabilities.
        """


def open_text_model(
    spec: str,
    *,
    max_new_tokens: int = 64,
    device: str = "auto",
    batch_size: int = 8,
    seed: int = 0,
    timeout_s: float = 60,
    max_retries: int = 5,
    requests_per_minute: float = 0,
    chat_template: bool = True,
    completions: bool = False,
) -> TextModel:
    """A model by name. Decoding is greedy (temperature 0).

    Args:
        spec: `openai:MODEL[@BASE_URL]` (else the base URL in OPENAI_BASE_URL, else OpenAI's own; the key in
            OPENAI_API_KEY, which a local endpoint may not need) or `hf:PATH_OR_NAME`.
        max_new_tokens: bound on the length of an answer.
        device: of a local model: `auto`, or a device of torch.
        batch_size: prompts that a local model reads at once; requests that an endpoint gets at once.
        seed: is sent to an endpoint unless 0; a local model's greedy decoding knows no chance.
        timeout_s: seconds that an endpoint may take for a request.
        max_retries: how often a request is repeated, with growing pauses, after a timeout, 429 or 5xx.
        requests_per_minute: bound on requests to an endpoint, repetitions included; 0 for none.
        chat_template: present prompts to a local model as a user's turn, if its tokenizer has a template.
        completions: have an endpoint continue the bare prompt (`/completions`) rather than answer a turn.

    Raises:
        ValueError: no such kind of model, its key is missing, or it cannot be loaded.
    """
    kind, _, name = spec.partition(":")
    if max_new_tokens < 1 or batch_size < 1:
        raise ValueError("max_new_tokens and batch_size must be at least 1")
    if kind == "openai" and name:
        from models.language.endpoint import EndpointTextModel

        return EndpointTextModel(
            name,
            max_new_tokens=max_new_tokens,
            seed=seed,
            parallel=batch_size,
            timeout_s=timeout_s,
            max_retries=max_retries,
            requests_per_minute=requests_per_minute,
            completions=completions,
        )
    if kind == "hf" and name:
        from models.language.local_model import LocalTextModel

        return LocalTextModel(
            name,
            max_new_tokens=max_new_tokens,
            device=device,
            batch_size=batch_size,
            chat_template=chat_template,
        )
    raise ValueError(
        f"no text model {spec!r}; write openai:MODEL, openai:MODEL@http://HOST/v1 or hf:FOLDER_OR_HUB_NAME"
    )
