"""An OpenAI-compatible endpoint as a text model.

Chat completions, several at once, answers in order. What concerns one prompt is a `TextFailure`; what no
prompt can survive (a wrong key, an unknown model, an endpoint that keeps failing) ends the run in one line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from models.language.endpoint_client import (
    asked_in_order,
    is_openai,
    key_for,
    model_and_url,
    open_client,
    reply_or_failure,
)
from models.language.text_models import Ability, Settings, TextFailure, TextModel

MAX_LOGPROBS = {"chat": 20, "completions": 5}
"""How many tokens OpenAI's endpoints report at most."""


class EndpointTextModel(TextModel):
    """A chat model behind HTTP.

    Args:
        model: `MODEL` or `MODEL@BASE_URL`; without one the base URL is OPENAI_BASE_URL or OpenAI's own.
        max_new_tokens: bound on an answer.
        seed: sent unless 0 (not every endpoint knows it).
        parallel: requests in flight.
        timeout_s: seconds a request may take.
        max_retries: repetitions of a request, with growing pauses, after a timeout, 429 or 5xx.
        requests_per_minute: bound on requests, repetitions included; 0 for none.
        completions: send bare prompts to be continued (`/completions`), not a user's turns.

    Raises:
        ValueError: the base URL is not one, or OpenAI's own endpoint is asked without OPENAI_API_KEY.
    """

    can: frozenset[Ability] = frozenset({"write", "next_token"})

    def __init__(
        self,
        model: str,
        *,
        max_new_tokens: int = 64,
        seed: int = 0,
        parallel: int = 8,
        timeout_s: float = 60,
        max_retries: int = 5,
        requests_per_minute: float = 0,
        completions: bool = False,
    ) -> None:
        if timeout_s <= 0 or max_retries < 0 or requests_per_minute < 0:
            raise ValueError("timeout_s must be above 0, max_retries and requests_per_minute not below 0")
        self.model, self.url = model_and_url(model)
        self.name = f"openai:{self.model}@{self.url}"
        self.parallel, self.completions = parallel, completions
        self.settings: Settings = {"max_new_tokens": max_new_tokens, "temperature": 0}
        if completions:
            self.settings["completions"] = True
        if seed:
            self.settings["seed"] = seed
        # OpenAI has renamed the bound; the other endpoints know the old name.
        renamed = is_openai(self.url) and not completions
        self._bound = "max_completion_tokens" if renamed else "max_tokens"
        self._request = {self._bound: max_new_tokens, "temperature": 0} | ({"seed": seed} if seed else {})
        self._key = key_for(self.url)
        self._client = open_client(
            self.url,
            self._key,
            timeout_s=timeout_s,
            max_retries=max_retries,
            requests_per_minute=requests_per_minute,
        )

    def complete(self, prompts: Sequence[str]) -> Iterator[str | TextFailure]:
        return asked_in_order(self._ask, prompts, parallel=self.parallel, name=self.name)

    def next_token_logprobs(
        self, prompts: Sequence[str], labels: Sequence[str], *, after: str = "", top: int = 0
    ) -> Iterator[tuple[float, ...] | TextFailure]:
        """From the most probable tokens that the endpoint reports: `top`, or the most that it can.

        With `top` a token must be the label itself; without, what begins one label alone counts for it.
        """
        count = top or MAX_LOGPROBS["completions" if self.completions else "chat"]
        more = {"logprobs": count} if self.completions else {"logprobs": True, "top_logprobs": count}

        def ask(prompt: str) -> tuple[float, ...] | TextFailure:
            reply = self._reply(prompt, {**self._request, self._bound: 1, **more})
            if isinstance(reply, TextFailure):
                return reply
            tokens = first_tokens(reply, self.name)
            return (
                tokens if isinstance(tokens, TextFailure) else label_logprobs(tokens, labels, exact=top > 0)
            )

        return asked_in_order(ask, prompts, parallel=self.parallel, name=self.name)

    def _ask(self, prompt: str) -> str | TextFailure:
        reply = self._reply(prompt, self._request)
        return reply if isinstance(reply, TextFailure) else _text(reply)

    def _reply(self, prompt: str, request: dict[str, Any]) -> Any:
        """What the endpoint sends, or a TextFailure."""

        def send() -> Any:
            if self.completions:
                return self._client.completions.create(model=self.model, prompt=prompt, **request)
            turns = [{"role": "user", "content": prompt}]
            return self._client.chat.completions.create(model=self.model, messages=turns, **request)

        return reply_or_failure(
            send, name=self.name, key=self._key, variable="OPENAI_API_KEY", where="model and base URL"
        )


def _text(reply: Any) -> str | TextFailure:
    """The text of a completion. The client checks no types: anything may be in there."""
    try:
        choice = reply.choices[0]
        text = choice.message.content if hasattr(choice, "message") else choice.text
    except (AttributeError, IndexError, TypeError, KeyError):
        return TextFailure("the endpoint answered nonsense")
    if text is not None and not isinstance(text, str):
        return TextFailure("the endpoint answered nonsense")
    return text.strip() if text and text.strip() else TextFailure("empty answer")


def first_tokens(reply: Any, name: str) -> list[tuple[str, float]] | TextFailure:
    """The most probable first tokens of a completion with their log-probabilities.

    Raises:
        ValueError: the endpoint sends none.
    """
    try:
        logprobs = reply.choices[0].logprobs
    except (AttributeError, IndexError, TypeError, KeyError):
        return TextFailure("the endpoint answered nonsense")
    if logprobs is None:
        raise ValueError(f"{name} reports no log-probabilities; choose a model or an endpoint that does")
    try:
        content = getattr(logprobs, "content", None)
        if content is not None:
            return [(str(t.token), float(t.logprob)) for t in content[0].top_logprobs]
        first: Mapping[str, float] = logprobs.top_logprobs[0]
        return [(str(token), float(value)) for token, value in first.items()]
    except IndexError:
        return TextFailure("empty answer")
    except (AttributeError, TypeError, ValueError, KeyError):
        return TextFailure("the endpoint answered nonsense")


def label_logprobs(
    tokens: Sequence[tuple[str, float]], labels: Sequence[str], *, exact: bool
) -> tuple[float, ...]:
    """The log-probabilities of labels from those of some tokens; -inf where none belongs to a label.

    >>> label_logprobs([("Yes", -0.5), ("yes", -1.0), ("no", -2.0)], ("no", "yes"), exact=True)
    (-2.0, -1.0)

    Args:
        tokens: the most probable tokens as strings.
        labels: the label words.
        exact: a token must be the label. Otherwise a token, without the white space around it, counts for the
            label that it begins, if it begins one alone, and several add up.
    """

    def whose(token: str) -> str | None:
        if exact:
            return token if token in labels else None
        piece = token.strip()
        begun = [label for label in labels if piece and label.startswith(piece)]
        return begun[0] if len(begun) == 1 else None

    total = dict.fromkeys(labels, 0.0)
    for token, value in tokens:
        if (label := whose(token)) is not None:
            total[label] += math.exp(value)
    return tuple(math.log(total[label]) if total[label] > 0 else -math.inf for label in labels)
