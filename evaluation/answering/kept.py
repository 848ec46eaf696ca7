"""Stored answers: an interrupted evaluation resumes without repeating any."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, is_dataclass
from functools import wraps
from itertools import chain
from typing import Any, cast

from interventune.evaluation.answering.processes import Processes, current
from interventune.evaluation.answering.sharing import Method, shared
from interventune.models.language.text_models import TextFailure
from interventune.storage.finished_work import work_key
from interventune.storage.json_files import plain_json

CHUNK = 256
"""Number of answers between two exchanges of several processes, the most that an interruption
loses.
"""


def kept(method: Method) -> Method:
    """`shared` for answers that take long and are plain JSON: none is computed twice. Each is
    stored in the finished work, under the model's `identity`, the method, the request, and other
    arguments except `what`, the name of a progress bar. Requests are plain JSON, or dataclasses of
    it; a `TextFailure` is not stored.

    The answers come as an iterator. One process stores each at once, several store `CHUNK` at a
    time.
    """
    divided = shared(method)

    @wraps(method)
    def answered(model: Any, requests: Iterable[Any], *more: Any, **named: Any) -> Iterator[Any]:
        work = current.get(Processes()).work
        arguments = [more, {name: value for name, value in named.items() if name != "what"}]
        name = f"{method.__module__}.{method.__qualname__}"
        parts = {"model": model.identity, "method": name, "arguments": arguments}
        requests = list(requests)
        plain = [asdict(r) if is_dataclass(r) else r for r in requests]  # type: ignore[arg-type]
        keys = [work_key(**plain_json({**parts, "request": request})) for request in plain]
        waiting = {
            key: request for key, request in zip(keys, requests, strict=True) if key not in work
        }
        missing, failed = [*waiting.values()], dict[str, TextFailure]()
        parts_of = (missing[start : start + CHUNK] for start in range(0, len(missing), CHUNK))
        answers = chain.from_iterable(divided(model, part, *more, **named) for part in parts_of)
        for key in keys:
            if key in waiting:
                del waiting[key]
                if isinstance(answer := next(answers), TextFailure):
                    failed[key] = answer
                else:
                    work.keep(key, answer)
            yield failed[key] if key in failed else work[key]

    return cast(Method, answered)
