"""Talking to an HTTP endpoint: its address and key, retries, a rate limit, several requests at once.

The key never shows: not in a name, an error or a log line.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import urlsplit

from models.language.text_models import TextFailure

Answer = TypeVar("Answer")

MAX_FAILURES_IN_A_ROW = 25
"""After so many prompts that the endpoint failed on one after the other, going on would waste hours."""
OPENAI_URL = "https://api.openai.com/v1"

_PLACEHOLDER = "no-key"
_SCRUBBED = 6
"""Pieces of the key of this length are struck out of error texts."""


def model_and_url(spec: str) -> tuple[str, str]:
    """The parts of `MODEL[@BASE_URL]`; ValueError where one of them cannot be."""
    model, at, url = spec.partition("@")
    if at and "://" not in url and not re.search(r"[:/]", url):
        model, url = spec, ""  # a model whose own name has an @ in it, as in model@version
    elif "@http" in url:
        model, url = re.split(r"@(?=https?://)", spec, maxsplit=1)
    url = checked_url(
        url or os.environ.get("OPENAI_BASE_URL", "") or OPENAI_URL,
        write="openai:MODEL@http://HOST:PORT/v1",
        key="OPENAI_API_KEY",
    )
    if not model:
        raise ValueError("openai: needs the name of a model, as in openai:gpt-4o-mini")
    return model, url


def checked_url(url: str, *, write: str, key: str) -> str:
    """A base URL without its last slash.

    Raises:
        ValueError: it is none (the error says what to `write`), or it carries secrets, which belong into the
            environment variable `key`.
    """
    url = url.rstrip("/")
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  (raises for a port that is no number)
    except ValueError as error:
        raise ValueError(f"{url!r} is no base URL ({error}); write {write}") from None
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError(f"a base URL carries no user, password or query; put the key into {key}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is no base URL; write {write}")
    return url


def is_openai(url: str) -> bool:
    """Whether a base URL is OpenAI's own."""
    host = urlsplit(url).hostname or ""
    return host == "openai.com" or host.endswith(".openai.com")


def key_for(url: str) -> str:
    """OPENAI_API_KEY; ValueError where there is none and OpenAI's own endpoint needs one."""
    key = os.environ.get("OPENAI_API_KEY", "").strip()
    if not key and is_openai(url):
        raise ValueError("OPENAI_API_KEY is not set; set it, or name another endpoint: openai:MODEL@BASE_URL")
    return checked_key(key, "OPENAI_API_KEY") or _PLACEHOLDER


def checked_key(key: str, name: str) -> str:
    """The key; ValueError names the environment variable where it cannot be one."""
    if not (key.isascii() and key.isprintable()):
        raise ValueError(f"{name} holds characters that no key has; set it anew")
    return key


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


def reply_or_failure(send: Callable[[], Any], *, name: str, key: str, variable: str, where: str) -> Any:
    """What one request gives: the reply, or a TextFailure where only this request went wrong.

    Args:
        send: the request, through a client of `open_client`.
        name: of the endpoint, for errors.
        key: never shown.
        variable: the environment variable that holds it.
        where: what says which endpoint it is, for errors.

    Raises:
        ValueError: the key is refused, or there is no such service.
    """
    import openai

    try:
        return send()
    except openai.APITimeoutError:
        return TextFailure("the endpoint timed out")
    except openai.APIConnectionError as error:
        return TextFailure("no connection to the endpoint", scrubbed(str(error.__cause__ or error), key))
    except openai.APIStatusError as error:
        status = error.status_code
        # Not the endpoint's own words: they may quote the key. Google answers 400 to a wrong one.
        if status in (401, 403) or "API_KEY_INVALID" in str(error.body):
            raise ValueError(f"{name} refuses access ({status}); check {variable}") from None
        if status == 404:
            reason = scrubbed(error.message, key)
            raise ValueError(f"{name} is not there (404): {reason}; check {where}") from None
        message = error.body.get("message") if isinstance(error.body, dict) else None
        return TextFailure(f"the endpoint answered {status}", scrubbed(str(message or error.message), key))
    except (openai.OpenAIError, ValueError):  # among them what is not JSON
        return TextFailure("the endpoint answered nonsense")


def scrubbed(message: str, key: str) -> str:
    """One short line without the key, nor any piece of it."""
    pieces = {key[i : i + _SCRUBBED] for i in range(max(1, len(key) - _SCRUBBED + 1)) if key}
    words = ["***" if "**" in word or any(p in word for p in pieces) else word for word in message.split()]
    line = " ".join(words)
    return line if len(line) <= 200 else line[:197] + "..."


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
