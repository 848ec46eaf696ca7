"""OpenAI-compatible endpoints: the connection, and chat models.

A problem with one request is a `TextFailure`; a problem that affects all requests (a wrong key, an
unknown model, repeated failures) ends the run with a one-line error. Names, errors and logs never
contain the key.
"""

import math
import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

import httpx2
import openai

from .text_models import EMPTY, LogProbs, Prompt, Prompts, Reply, T, TextFailure, TextModel, reply

MAX_LOGPROBS = 20
"""Largest number of token probabilities that OpenAI's endpoints report."""
FEW_LOGPROBS = 5
"""The number for endpoints that refuse the largest."""
MAX_FAILURES_IN_A_ROW = 25
"""The run stops after this many consecutive failed requests, instead of wasting hours."""
OPENAI_URL = "https://api.openai.com/v1"
MAX_RETRIES = 5
"""After a timeout, 429 or 5xx, a request is retried with growing pauses."""
LARGEST = 2**26
"""Limit of a response in bytes; one with the log-probabilities of 16 long prompts has 10 MB."""
SECRET = 16
"""Number of characters from which a key is secret; shorter ones, as EMPTY, are words."""
NONSENSE = TextFailure("the endpoint answered nonsense")
REFUSED = TextFailure("the endpoint answered 400")


class Endpoint(TextModel):
    """A model behind a server.

    Args:
        model: `MODEL` or `MODEL@BASE_URL`; the default base URL is OPENAI_BASE_URL or OpenAI's own.
        max_new_tokens: limit on the length of an answer.
        parallel: maximum number of concurrent requests.
        more: what else answers depend on, as plain JSON.

    Raises:
        ValueError: the base URL is invalid, or OPENAI_API_KEY is missing for OpenAI's own endpoint.
    """

    timeout_s = 60.0
    """Limit of one request."""

    def __init__(
        self, model: str, *, max_new_tokens: int = 64, parallel: int = 8, **more: Any
    ) -> None:
        self.model, url = model_and_url(model)
        self.name = f"openai:{self.model}@{url}"
        self.max_new_tokens = max_new_tokens
        self.parallel = parallel
        self.identity = {"name": self.name, "temperature": 0, "max_new_tokens": max_new_tokens}
        self.identity |= more
        self.is_openai = f".{urlsplit(url).hostname}".endswith(".openai.com")
        key = os.environ.get("OPENAI_API_KEY", "").strip()
        if not (key.isascii() and key.isprintable()):
            raise ValueError("OPENAI_API_KEY holds characters that no key has; set it anew")
        if self.is_openai and not key:
            raise ValueError(
                f"{self.name}: OPENAI_API_KEY is not set; set it, or name another endpoint as "
                "openai:MODEL@BASE_URL"
            )
        self.secret = key.encode() if len(key) >= SECRET else b"\xff" * SECRET  # in no text
        self.client = openai.OpenAI(
            api_key=key or "no-key",
            base_url=url,
            timeout=self.timeout_s,
            max_retries=MAX_RETRIES,
            default_headers={"Accept-Encoding": "identity"},
            http_client=openai.DefaultHttpxClient(event_hooks={"response": [self._whole]}),
        )
        self.reached = False

    def _whole(self, response: httpx2.Response) -> None:
        """Read a body within the limits of time and size, without the key; httpx2.ReadTimeout for
        any other.
        """
        began = time.monotonic()
        body = bytearray()
        stream: Any = response.stream
        with closing(stream):
            for part in stream:
                body += part
                late = time.monotonic() - began > self.timeout_s
                packed = response.headers.get("Content-Encoding", "identity") != "identity"
                if late or packed or len(body) > LARGEST:
                    raise httpx2.ReadTimeout("endless, too large, or compressed")
        response.stream = httpx2.ByteStream(bytes(body.replace(self.secret, b"[key]")))

    def in_parallel(
        self, requests: Iterable[T], ask: Callable[[T], Sequence[Any]]
    ) -> Iterator[Any]:
        """Yield the answers that `ask` returns for each request, in order, each as soon as it is
        there.

        ValueError after MAX_FAILURES_IN_A_ROW failures.
        """
        pool = ThreadPoolExecutor(self.parallel)
        rest = iter(requests)
        waiting = deque[Future[Any]]()
        failed = 0
        try:
            while True:
                free = islice(rest, self.parallel - len(waiting))
                waiting.extend(pool.submit(ask, request) for request in free)
                if not waiting:
                    return
                for answer in waiting.popleft().result():
                    yield answer
                    failed = failed + 1 if isinstance(answer, TextFailure) else 0
                    if failed >= MAX_FAILURES_IN_A_ROW:
                        raise ValueError(
                            f"{self.name} failed {failed} times in a row, the last time: {answer}; "
                            "check the endpoint and start again"
                        )
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def send(self, create: Callable[..., Any], read: Callable[[Any], T], **request: Any) -> Any:
        """Return what `read` makes of a response, or why there is none.

        Args:
            create: the client's method.
            read: gets the response, whose fields may be missing or of another type.
            request: the fields.

        Raises:
            ValueError: no request can succeed.
        """
        try:
            response = create(model=self.model, temperature=0, **request)
        except openai.APIConnectionError as error:
            late = isinstance(error, openai.APITimeoutError)
            reason = "the endpoint timed out" if late else "no connection to the endpoint"
            if not self.reached:
                raise ValueError(
                    f"{self.name} answers nothing: {reason}; check the endpoint"
                ) from None
            return TextFailure(reason)
        except openai.APIStatusError as error:
            self.reached = True
            status = error.status_code
            # Do not quote the endpoint: its message may contain the key. Google answers 400 to a
            # wrong key.
            if status in (401, 403) or "API_KEY_INVALID" in str(error.body):
                raise ValueError(
                    f"{self.name} refuses access ({status}); check OPENAI_API_KEY"
                ) from None
            if status == 404:
                raise ValueError(
                    f"{self.name} is not there (404); check model and base URL"
                ) from None
            return TextFailure(f"the endpoint answered {status}")
        except (openai.OpenAIError, ValueError):  # including invalid JSON
            return NONSENSE
        self.reached = True
        try:
            return read(response)
        except (AttributeError, IndexError, TypeError, KeyError, UnicodeError):
            return NONSENSE


class ChatModel(Endpoint):
    """A chat model behind an endpoint, which applies its own template."""

    def complete(self, prompts: Prompts) -> Iterator[Reply]:
        return self._answers(prompts, _text, self.max_new_tokens)

    def next_token_logprobs(
        self, prompts: Prompts, labels: Sequence[str], *, after: str = "", top: int = 0
    ) -> Iterator[LogProbs]:
        """Computed from the most probable tokens that the endpoint reports: `top`, or as many as
        possible.

        With `top`, a token must equal the label; without, a token counts if it begins exactly one
        label.
        """

        def read(response: Any) -> LogProbs:
            choice = response.choices[0]
            if choice.logprobs is None:
                raise ValueError(
                    f"{self.name} reports no log-probabilities; choose a model or an endpoint that "
                    "does"
                )
            if not choice.logprobs.content:
                return EMPTY
            tokens = [(t.token, t.logprob) for t in choice.logprobs.content[0].top_logprobs]
            return label_logprobs(tokens, labels, exact=top > 0)

        return self._answers(prompts, read, 1, logprobs=True, top_logprobs=top or MAX_LOGPROBS)

    def _answers(
        self, prompts: Prompts, read: Callable[[Any], Any], max_tokens: int, **options: Any
    ) -> Iterator[Any]:
        # OpenAI has renamed this field; the other endpoints know the old name.
        options["max_completion_tokens" if self.is_openai else "max_tokens"] = max_tokens
        create = self.client.chat.completions.create

        def ask(prompt: Prompt) -> list[Any]:
            turns = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
            answer = self.send(create, read, messages=turns, **options)
            if answer == REFUSED and options.get("top_logprobs", 0) > FEW_LOGPROBS:
                options["top_logprobs"] = FEW_LOGPROBS  # for all further prompts
                answer = self.send(create, read, messages=turns, **options)
            return [answer]

        return self.in_parallel(prompts, ask)


def _text(response: Any) -> Reply:
    text = response.choices[0].message.content or ""
    text.encode()  # a lone surrogate cannot be written to a file
    return reply(text)


def label_logprobs(
    tokens: Sequence[tuple[str, float]], labels: Sequence[str], *, exact: bool
) -> tuple[float, ...]:
    """The log-probabilities of labels, summed from those of some tokens; -inf for a label without a
    token.

    >>> label_logprobs([("Yes", -0.5), ("yes", -1.0), ("no", -2.0)], ("no", "yes"), exact=True)
    (-2.0, -1.0)

    With `exact`, a token must equal the label. Otherwise a token, stripped of white space, counts
    for the label that it begins, if it begins exactly one; several tokens add up.
    """
    total = dict.fromkeys(labels, 0.0)
    for token, value in tokens:
        piece = token.strip()
        if exact:
            matches = [label for label in labels if label == token]
        else:
            matches = [label for label in labels if piece and label.startswith(piece)]
        if len(matches) == 1:
            total[matches[0]] += math.exp(value)
    return tuple(math.log(total[label]) if total[label] > 0 else -math.inf for label in labels)


def model_and_url(spec: str) -> tuple[str, str]:
    """Split `MODEL[@BASE_URL]`; the model's name may contain an @, as in model@version.

    Raises:
        ValueError: a part is invalid, or the URL contains secrets.
    """
    model, *urls = re.split(r"@(?=\w+://|[\w.-]+:\d)", spec, maxsplit=1)
    url = ("".join(urls) or os.environ.get("OPENAI_BASE_URL", "") or OPENAI_URL).rstrip("/")
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:  # whose text may hold a part of a password
        raise ValueError("openai:MODEL@BASE_URL: the base URL is no http://HOST:PORT/v1") from None
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError(
            "a base URL carries no user, password or query; put the key into OPENAI_API_KEY"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or not model:
        raise ValueError(
            f"{spec!r}: write openai:MODEL@http://HOST:PORT/v1 (the base URL is {url!r})"
        )
    return model, url
