"""An OpenAI-compatible endpoint as a text model: retries, a rate limit, and a key that never shows.

Chat completions, several at once, answers in order. What concerns one prompt is a `TextFailure`; what no
prompt can survive (a wrong key, an unknown model, an endpoint that keeps failing) ends the run in one line.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from models.language.endpoint_address import is_openai, key_for, model_and_url
from models.language.text_models import Settings, TextFailure

if TYPE_CHECKING:
    from torch import Tensor

Answer = TypeVar("Answer")

MAX_FAILURES_IN_A_ROW = 25
"""After so many prompts that the endpoint failed on one after the other, going on would waste hours."""

_SCRUBBED = 6
"""Pieces of the key of this length are struck out of error texts."""


class EndpointTextModel:
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

    def log_likelihoods(self, pairs: Sequence[tuple[str, str]]) -> Tensor:
        """Always ValueError: endpoints do not tell the probabilities of a given text."""
        raise ValueError(
            f"{self.name} cannot score given texts; choose a local model (hf:FOLDER_OR_HUB_NAME)"
        )

    def next_token_logprobs(
        self, prompts: Sequence[str], labels: Sequence[str], *, after: str = "", top: int = 0
    ) -> Iterator[tuple[float, ...] | TextFailure]:
        """From the most probable tokens that the endpoint tells: as many as `top`, or as it is known to tell.
        With `top` a token must be the label itself; without, what begins one label alone counts for it."""
        from models.language.next_token import MOST_TOLD, label_logprobs, told_tokens

        told = top or MOST_TOLD["completions" if self.completions else "chat"]
        more = {"logprobs": told} if self.completions else {"logprobs": True, "top_logprobs": told}

        def ask(prompt: str) -> tuple[float, ...] | TextFailure:
            reply = self._reply(prompt, {**self._request, self._bound: 1, **more})
            if isinstance(reply, TextFailure):
                return reply
            found = told_tokens(reply, self.name)
            return found if isinstance(found, TextFailure) else label_logprobs(found, labels, exact=top > 0)

        return asked_in_order(ask, prompts, parallel=self.parallel, name=self.name)

    def _ask(self, prompt: str) -> str | TextFailure:
        reply = self._reply(prompt, self._request)
        return reply if isinstance(reply, TextFailure) else _text(reply)

    def _reply(self, prompt: str, request: dict[str, Any]) -> Any:
        """What the endpoint sends, or a TextFailure."""
        import openai

        try:
            if self.completions:
                return self._client.completions.create(model=self.model, prompt=prompt, **request)
            turns = [{"role": "user", "content": prompt}]
            return self._client.chat.completions.create(model=self.model, messages=turns, **request)
        except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
            # Not the endpoint's own words: they may quote the key.
            raise ValueError(
                f"{self.name} refuses access ({error.status_code}); check OPENAI_API_KEY"
            ) from None
        except openai.NotFoundError as error:
            said = self._scrub(error.message)
            raise ValueError(f"{self.name} is not there (404): {said}; check model and base URL") from None
        except openai.APITimeoutError:
            return TextFailure("the endpoint timed out")
        except openai.APIStatusError as error:
            return TextFailure(f"the endpoint answered {error.status_code}", self._scrub(error.message))
        except openai.APIConnectionError as error:
            return TextFailure("no connection to the endpoint", self._scrub(str(error.__cause__ or error)))
        except (openai.OpenAIError, ValueError):  # among them what is not JSON
            return TextFailure("the endpoint answered nonsense")

    def _scrub(self, message: str) -> str:
        return scrubbed(message, self._key)


def asked_in_order(
    ask: Callable[[str], Answer], texts: Iterable[str], *, parallel: int, name: str
) -> Iterator[Answer]:
    """`ask` of each text, up to `parallel` at once; answers in order, each as soon as it is there.

    Args:
        ask: one request, whose answer may be a TextFailure; what it raises ends the run.
        texts: what to ask, taken as it is needed.
        parallel: requests in flight.
        name: of the endpoint, for errors.

    Raises:
        ValueError: MAX_FAILURES_IN_A_ROW answers in a row were failures.
    """
    pool = ThreadPoolExecutor(parallel, thread_name_prefix="endpoint")
    waiting: deque[Future[Answer]] = deque()
    rest = iter(texts)
    in_a_row = 0
    try:
        while True:
            waiting.extend(pool.submit(ask, text) for text in islice(rest, parallel - len(waiting)))
            if not waiting:
                return
            answer = waiting.popleft().result()
            in_a_row = in_a_row + 1 if isinstance(answer, TextFailure) else 0
            yield answer
            if in_a_row >= MAX_FAILURES_IN_A_ROW:
                raise ValueError(
                    f"{name} failed {in_a_row} times in a row, the last time: {answer}; "
                    "see to the endpoint and start again"
                )
    finally:
        # Whoever stops early does not wait for requests in flight.
        pool.shutdown(wait=False, cancel_futures=True)


def scrubbed(message: str, key: str) -> str:
    """One short line without the key, nor any piece of it."""
    pieces = {key[i : i + _SCRUBBED] for i in range(max(1, len(key) - _SCRUBBED + 1)) if key}
    words = ["***" if "**" in word or any(p in word for p in pieces) else word for word in message.split()]
    line = " ".join(words)
    return line if len(line) <= 200 else line[:197] + "..."


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


def open_client(
    url: str,
    key: str,
    *,
    timeout_s: float,
    max_retries: int,
    requests_per_minute: float,
    prepare: Callable[[Any], None] | None = None,
) -> Any:
    """The HTTP client: repeats after a timeout, 429 or 5xx with growing pauses (or those that the endpoint
    asks for), and keeps to `requests_per_minute`, repetitions included (0: no bound).

    Args:
        url: base of all paths.
        key: sent as a bearer token.
        timeout_s: seconds that a request may take.
        max_retries: repetitions of a request.
        requests_per_minute: the bound.
        prepare: is given every request last, as the HTTP library knows it.
    """
    import openai

    pace = _Pace(60 / requests_per_minute if requests_per_minute else 0)
    # A hook of the transport sees the client's repetitions too.
    hooks = [lambda request: pace.wait(), *([prepare] if prepare else [])]
    return openai.OpenAI(
        api_key=key,
        base_url=url,
        timeout=timeout_s,
        max_retries=max_retries,
        http_client=openai.DefaultHttpxClient(event_hooks={"request": hooks}),
    )


class _Pace:
    """Lets callers through one by one, `seconds` apart."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self._next, self._lock = seconds, 0.0, threading.Lock()

    def wait(self) -> None:
        with self._lock:
            now = time.monotonic()
            at = max(now, self._next)
            self._next = at + self.seconds
        if at > now:
            time.sleep(at - now)
