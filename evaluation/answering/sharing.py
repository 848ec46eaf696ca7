"""Requests that several processes divide among themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, TypeVar, cast

from interventune.evaluation.answering.processes import Processes, current

Method = TypeVar("Method", bound=Callable[..., Any])


def shared(method: Method) -> Method:
    """Divide the requests of a call among processes (one without requests does nothing); all get
    all answers. For a method, or a function of a model, whose first argument is requests and that
    returns one answer per request, in order, as a list, an iterator, or the rows of a tensor.
    """

    @wraps(method)
    def divided(model: Any, requests: Iterable[Any], *more: Any, **named: Any) -> Any:
        processes = current.get(Processes())
        if processes.size == 1:
            return method(model, requests, *more, **named)
        import torch

        requests, answers = list(requests), None
        share = requests[processes.rank :: processes.size]
        token = current.set(Processes())  # no further division inside
        try:
            if share or not requests:
                answers = method(model, share, *more, **named)
                answers = answers if isinstance(answers, torch.Tensor) else list(answers)
        finally:
            current.reset(token)
        parts = processes.gathered(answers)
        first, whole = parts[0], cast(Any, [None] * len(requests))
        if isinstance(first, torch.Tensor):
            whole = first.new_empty(len(requests), *first.shape[1:])
        for rank, part in enumerate(parts[: len(requests)]):
            whole[rank :: processes.size] = part
        return whole

    return cast(Method, divided)
