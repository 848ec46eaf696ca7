"""HTTP endpoints: an OpenAI-compatible one as a text model, and how any is talked to.

Chat completions, several at once, answers in order. What concerns one prompt is a `TextFailure`; what no
prompt can survive (a wrong key, an unknown model, an endpoint that keeps failing) ends the run in one line.
The key never shows: not in a name, an error or a log line.
"""

from __future__ import annotations

import math
import os
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from tqdm import tqdm

from models.language.text_models import Ability, PairError, Settings, TextFailure, TextModel
from storage.json_files import half_surrogate

if TYPE_CHECKING:
    from torch import Tensor

Answer = TypeVar("Answer")

MAX_LOGPROBS = {"chat": 20, "completions": 5}
"""How many tokens OpenAI's endpoints report at most."""
MAX_FAILURES_IN_A_ROW = 25
"""After so many prompts that the endpoint failed on one after the other, going on would waste hours."""
SECONDS_BETWEEN_LINES = 0.4
"""Of all requests at once, at least so long between two lines about repetitions."""
GREEDY: tuple[dict[str, float], ...] = ({"temperature": 0}, {"temperature": 1, "top_p": 1e-4})
"""Ways to ask for the likeliest tokens. vLLM, SGLang, llama.cpp and OpenAI take the first, which TGI and
others that divide by the temperature refuse; a nucleus of a ten thousandth holds one token."""
OPENAI_URL = "https://api.openai.com/v1"
TIMED_OUT, UNREACHABLE = "the endpoint timed out", "no connection to the endpoint"
NO_LIKELIHOODS = (
    "this server does not tell the log-probabilities of given texts (/completions with echo and logprobs, as "
    "vLLM and SGLang do); ask by letter (--choice-prompt letters), or name a local model (hf:PATH)"
)
NONSENSE, EMPTY = TextFailure("the endpoint answered nonsense"), TextFailure("empty answer")

_SAMPLING = re.compile(r"\b(temperature|top_p)\b")


class EndpointTextModel(TextModel):
    """A chat model behind HTTP.

    Args:
        model: `MODEL` or `MODEL@BASE_URL`; without one the base URL is OPENAI_BASE_URL or OpenAI's own.
        max_new_tokens: bound on an answer.
        seed: sent unless 0 (not every endpoint knows it).
        parallel: requests in flight.
        timeout_s: seconds a request may take.
        max_retries: repetitions of a request, with growing pauses, after a timeout, 429 or 5xx.
        completions: send bare prompts to be continued (`/completions`), not a user's turns.

    Raises:
        ValueError: the base URL is not one, or OpenAI's own endpoint is asked without OPENAI_API_KEY.
    """

    can: frozenset[Ability] = frozenset({"write", "next_token", "likelihood"})
    is_seq2seq, chat = False, False
    """Given texts are continued, not answered."""

    def __init__(
        self,
        model: str,
        *,
        max_new_tokens: int = 64,
        seed: int = 0,
        parallel: int = 8,
        timeout_s: float = 60,
        max_retries: int = 5,
        completions: bool = False,
    ) -> None:
        self.model, self.url = model_and_url(model)
        self.name = f"openai:{self.model}@{self.url}"
        self.parallel, self.completions = parallel, completions
        seeded = {"seed": seed} if seed else {}
        bare = {"completions": True} if completions else {}
        self.settings: Settings = {"max_new_tokens": max_new_tokens, "temperature": 0, **bare, **seeded}
        host = urlsplit(self.url).hostname or ""
        is_openai = host == "openai.com" or host.endswith(".openai.com")
        # OpenAI has renamed the bound; the other endpoints know the old name.
        self._bound = "max_completion_tokens" if is_openai and not completions else "max_tokens"
        self._request = {self._bound: max_new_tokens, **seeded}
        self._way = 0
        """Of GREEDY, the first that was not refused."""
        self._key = checked_key(os.environ.get("OPENAI_API_KEY", "").strip(), "OPENAI_API_KEY")
        if is_openai and not self._key:
            raise ValueError(
                f"{self.name}: OPENAI_API_KEY is not set; set it, or name another endpoint as "
                "openai:MODEL@BASE_URL"
            )
        self._client = open_client(
            self.url, self._key or "no-key", timeout_s=timeout_s, max_retries=max_retries
        )

    def complete(self, prompts: Sequence[str]) -> Iterator[str | TextFailure]:
        return self._answers(prompts, self._request, _text)

    def next_token_logprobs(
        self, prompts: Sequence[str], labels: Sequence[str], *, after: str = "", top: int = 0
    ) -> Iterator[tuple[float, ...] | TextFailure]:
        """From the most probable tokens that the endpoint reports: `top`, or the most that it can.

        With `top` a token must be the label itself; without, what begins one label alone counts for it.
        """
        count = top or MAX_LOGPROBS["completions" if self.completions else "chat"]
        more = {"logprobs": count} if self.completions else {"logprobs": True, "top_logprobs": count}

        def read(choice: Any) -> tuple[float, ...] | TextFailure:
            if choice.logprobs is None:
                raise ValueError(
                    f"{self.name} reports no log-probabilities; choose a model or an endpoint that does"
                )
            chat = getattr(choice.logprobs, "content", None)
            places = choice.logprobs.top_logprobs if chat is None else chat
            if not len(places):
                return EMPTY
            first = places[0]
            pairs = first.items() if chat is None else [(t.token, t.logprob) for t in first.top_logprobs]
            tokens = [(str(token), value + 0.0) for token, value in pairs]  # TypeError for what is no number
            return label_logprobs(tokens, labels, exact=top > 0)

        return self._answers(prompts, {**self._request, self._bound: 1, **more}, read)

    def log_likelihoods(self, pairs: Sequence[tuple[str, str]]) -> tuple[Tensor, Tensor]:
        """From `/completions`, which repeats the text that it gets (`echo`) with the log-probabilities of its
        tokens (`logprobs`), as vLLM and SGLang do; one more token is asked for and left out. A token that
        spans the end of the prompt counts. Each text is asked for once.

        Raises:
            ValueError: the server does not tell them.
            PairError: a pair has no answer.
        """
        import torch

        whole = [prompt + continuation for prompt, continuation in pairs]
        different = {text: i for i, text in reversed(list(enumerate(whole)))}
        request = {**self._request, "echo": True, "logprobs": 1, "max_tokens": 1}
        request.pop("max_completion_tokens", None)

        def read(choice: Any) -> list[tuple[str, float | None]]:
            told = choice.logprobs
            if told is None or not told.tokens or len(told.tokens) != len(told.token_logprobs or ()):
                raise ValueError(f"{self.name}: {NO_LIKELIHOODS}")
            return list(zip(map(str, told.tokens), told.token_logprobs, strict=True))

        answers = self._answers(list(different), request, read, bare=True)
        told_of = dict(zip(different, answers, strict=True))
        sums, counts = [], []
        for i, (prompt, _) in enumerate(pairs):
            told = told_of[whole[i]]
            if isinstance(told, TextFailure):
                if " answered 4" in told.reason:
                    raise ValueError(f"{self.name}: {NO_LIKELIHOODS} ({told})")
                raise PairError(i, str(told))
            # Before the text may stand a token that begins every text; behind it is what was written.
            begin = "".join(token for token, _ in told).find(whole[i])
            if begin < 0:
                if sum(len(token) for token, _ in told) < len(whole[i]):  # the answer alone
                    raise ValueError(f"{self.name}: {NO_LIKELIHOODS}")
                raise PairError(i, "the endpoint's tokens do not spell the text")
            ends = list(accumulate(len(token) for token, _ in told))
            first, last = begin + len(prompt), begin + len(whole[i])
            inside = [value for end, (token, value) in zip(ends, told, strict=True) if first < end <= last]
            if not inside or any(value is None for value in inside):
                raise PairError(i, "the endpoint gives a token of the continuation no log-probability")
            sums.append(math.fsum(value for value in inside if value is not None))
            counts.append(len(inside))
        return torch.tensor(sums, dtype=torch.float64), torch.tensor(counts, dtype=torch.long)

    def require_likelihoods(self) -> None:
        """ValueError in one line where the server does not tell the log-probabilities of given texts."""
        try:
            self.log_likelihoods([("The sky is", " blue")])
        except PairError as error:
            raise ValueError(f"{self.name}: {NO_LIKELIHOODS} ({error.reason})") from None

    def _answers(
        self,
        prompts: Sequence[str],
        request: dict[str, Any],
        read: Callable[[Any], Answer | TextFailure],
        *,
        bare: bool = False,
    ) -> Iterator[Answer | TextFailure]:
        """What `read` makes of the first choice of every reply; `bare` prompts go to `/completions`."""

        def ask(prompt: str) -> Answer | TextFailure:
            way = self._way

            def send() -> Any:
                greedy = {"model": self.model, **GREEDY[way], **request}
                if self.completions or bare:
                    return self._client.completions.create(prompt=prompt, **greedy)
                turns = [{"role": "user", "content": prompt}]
                return self._client.chat.completions.create(messages=turns, **greedy)

            reply = reply_or_failure(
                send, name=self.name, key=self._key, variable="OPENAI_API_KEY", where="model and base URL"
            )
            if isinstance(reply, TextFailure):
                if not reply.reason.endswith((" 400", " 422")) or not _SAMPLING.search(reply.detail):
                    return reply
                self._way = max(self._way, way + 1)
                if self._way < len(GREEDY):
                    return ask(prompt)
                raise ValueError(
                    f"{self.name} cannot be asked for its likeliest answer, neither by temperature nor by "
                    f"top_p ({reply.detail}); choose another model"
                )
            try:  # the client checks no types: anything may be in there
                return read(reply.choices[0])
            except (AttributeError, IndexError, TypeError, KeyError):
                return NONSENSE

        return asked_in_order(ask, prompts, parallel=self.parallel, name=self.name)


def _text(choice: Any) -> str | TextFailure:
    text = choice.message.content if hasattr(choice, "message") else choice.text
    if text is not None and (not isinstance(text, str) or half_surrogate(text)):
        return NONSENSE
    return text.strip() if text and text.strip() else EMPTY


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

    def label_of(token: str) -> str | None:
        if exact:
            return token if token in labels else None
        piece = token.strip()
        begun = [label for label in labels if piece and label.startswith(piece)]
        return begun[0] if len(begun) == 1 else None

    total = dict.fromkeys(labels, 0.0)
    for token, value in tokens:
        if (label := label_of(token)) is not None:
            total[label] += math.exp(value)
    return tuple(math.log(total[label]) if total[label] > 0 else -math.inf for label in labels)


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
        _ = parts.port  # raises for a port that is no number
    except ValueError as error:
        raise ValueError(f"{url!r} is no base URL ({error}); write {write}") from None
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError(f"a base URL carries no user, password or query; put the key into {key}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is no base URL; write {write}")
    return url


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
        ValueError: MAX_FAILURES_IN_A_ROW answers in a row were failures; or there is
            nobody to answer, by the time that the first request has been repeated often enough.
    """
    pool = ThreadPoolExecutor(parallel, thread_name_prefix="endpoint")
    waiting: deque[Future[Answer]] = deque()
    rest = iter(texts)
    in_a_row, reached = 0, threading.Event()

    def answered(text: str) -> Answer:
        answer = ask(text)
        if not (isinstance(answer, TextFailure) and answer.reason in (TIMED_OUT, UNREACHABLE)):
            reached.set()
        return answer

    try:
        while True:
            waiting.extend(pool.submit(answered, text) for text in islice(rest, parallel - len(waiting)))
            if not waiting:
                return
            answer = waiting.popleft().result()
            in_a_row = in_a_row + 1 if isinstance(answer, TextFailure) else 0
            if not reached.is_set():
                raise ValueError(f"{name} answers nothing: {answer}; see to the endpoint and start again")
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
        return TextFailure(TIMED_OUT)
    except openai.APIConnectionError as error:
        return TextFailure(UNREACHABLE, scrubbed(str(error.__cause__ or error), key))
    except openai.APIStatusError as error:
        status = error.status_code
        # Not the endpoint's own words: they may quote the key. Google answers 400 to a wrong one.
        if status in (401, 403) or "API_KEY_INVALID" in str(error.body):
            raise ValueError(f"{name} refuses access ({status}); check {variable}") from None
        if status == 404:
            reason = scrubbed(error.message, key)
            raise ValueError(f"{name} is not there (404): {reason}; check {where}") from None
        message = error.body.get("message") if isinstance(error.body, dict) else error.body
        return TextFailure(f"the endpoint answered {status}", scrubbed(str(message or error.message), key))
    except (openai.OpenAIError, ValueError):  # among them what is not JSON
        return NONSENSE


def scrubbed(message: str, key: str) -> str:
    """One short line without the key, nor any six characters of it."""
    pieces = {key[i : i + 6] for i in range(max(1, len(key) - 6 + 1)) if key}
    words = ["***" if "**" in word or any(p in word for p in pieces) else word for word in message.split()]
    line = " ".join(words)
    return line if len(line) <= 200 else line[:197] + "..."


def open_client(
    url: str,
    key: str,
    *,
    timeout_s: float,
    max_retries: int,
    requests_per_minute: float = 0,
    prepare: Callable[[Any], None] | None = None,
) -> Any:
    """The HTTP client: repeats after a timeout, 429 or 5xx with growing pauses (or those that the endpoint
    asks for), says so on stderr, and keeps to `requests_per_minute`, repetitions included (0: no bound).

    Args:
        url: base of all paths.
        key: sent as a bearer token.
        timeout_s: seconds that a request may take.
        max_retries: repetitions of a request.
        requests_per_minute: the bound.
        prepare: is given every request last, as the HTTP library knows it.
    """
    import openai

    pace, last = _Pace(60 / requests_per_minute if requests_per_minute else 0), {"at": -math.inf}

    def tell(request: Any) -> None:
        retry = int(request.headers.get("x-stainless-retry-count", 0))
        if retry and time.monotonic() - last["at"] > SECONDS_BETWEEN_LINES:  # of many at once one is enough
            last["at"] = time.monotonic()
            tqdm.write(f"waiting for {url}, retry {retry} of {max_retries}", file=sys.stderr)

    # A hook of the transport sees the client's repetitions too.
    hooks = [tell, lambda request: pace.wait(), *([prepare] if prepare else [])]
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
