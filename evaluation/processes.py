"""Several processes on one protocol, and finished work.

torchrun --standalone --nproc_per_node 2 -m evaluation PROTOCOL ... --output DIR

Every process reads all data and opens every model. Where requests are answered, each answers its share, and
all get all answers (`shared`, `kept`): after that line every process computes the same, and no protocol knows
how many there are. The first alone keeps finished work, writes and prints.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, is_dataclass, replace
from datetime import timedelta
from functools import wraps
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from storage.finished_work import FinishedWork

Method = TypeVar("Method", bound=Callable[..., Any])

LONGEST_WAIT = timedelta(hours=12)
"""For a process whose share takes longer than another's."""
CHUNK = 256
"""Answers of several processes between two exchanges of `kept`: what an interruption costs at most."""


@dataclass(frozen=True)
class Processes:
    """Which process this is, of how many, and what they have finished."""

    rank: int = 0
    size: int = 1
    work: FinishedWork | None = None

    def gathered(self, value: Any) -> list[Any]:
        """The value of each process, by rank; ValueError where a process is gone."""
        if self.size == 1:
            return [value]
        import torch.distributed as dist

        values: list[Any] = [None] * self.size
        try:
            dist.all_gather_object(values, value)
        except RuntimeError as error:
            raise ValueError("another process has ended, by its own error or for want of memory") from error
        return values


def launched() -> tuple[int, int]:
    """Rank and number of processes, as torchrun sets them; (0, 1) without it."""
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


_current: ContextVar[Processes] = ContextVar("processes", default=Processes())  # noqa: B039  frozen


def shared(method: Method) -> Method:
    """For a method, or a function of a model, whose first argument is requests and that gives an answer for
    each, in order, as a list, an iterator, or the rows of a tensor: processes divide the requests (who gets
    none is not asked), and all get all answers."""

    @wraps(method)
    def divided(model: Any, requests: Iterable[Any], *more: Any, **named: Any) -> Any:
        processes = _current.get()
        if processes.size == 1:
            return method(model, requests, *more, **named)
        import torch

        requests, answers = list(requests), None
        share = requests[processes.rank :: processes.size]
        token = _current.set(Processes())  # what is divided is not divided again
        try:
            if share or not requests:
                answers = method(model, share, *more, **named)
                answers = answers if isinstance(answers, torch.Tensor) else list(answers)
        finally:
            _current.reset(token)
        parts = processes.gathered(answers)
        first, whole = parts[0], cast(Any, [None] * len(requests))
        if isinstance(first, torch.Tensor):
            whole = first.new_empty(len(requests), *first.shape[1:])
        for rank, part in enumerate(parts[: len(requests)]):
            whole[rank :: processes.size] = part
        return whole

    return cast(Method, divided)


def kept(method: Method) -> Method:
    """`shared` for answers that take long and are plain JSON: none is asked for twice. Each is kept in the
    finished work, under the model's `identity`, the method, the request, and other arguments but `what`, the
    name of a progress bar. Requests are plain JSON, or dataclasses of it; a `TextFailure` is not kept.

    The answers come as an iterator. One process keeps each as it comes, several keep `CHUNK` at a time.
    """
    divided = shared(method)

    @wraps(method)
    def answered(model: Any, requests: Iterable[Any], *more: Any, **named: Any) -> Iterator[Any]:
        from models.language.text_models import TextFailure
        from storage.finished_work import FinishedWork, work_key
        from storage.json_files import plain_json

        work = _current.get().work
        work = FinishedWork(None) if work is None else work
        arguments = [more, {name: value for name, value in named.items() if name != "what"}]
        parts = {"model": model.identity, "method": method.__qualname__, "arguments": arguments}
        requests = list(requests)
        plain = [asdict(r) if is_dataclass(r) else r for r in requests]  # type: ignore[arg-type]
        keys = [work_key(**plain_json({**parts, "request": request})) for request in plain]
        waiting = {key: request for key, request in zip(keys, requests, strict=True) if key not in work}
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


@contextmanager
def process_group(device: str, work: Path | None = None) -> Iterator[str]:
    """Join the other processes of torchrun, if any, and go on from finished work; gives the device of this
    process for the user's `--device`.

    Args:
        device: what the user asked for; of several processes each has its own GPU for `cuda` and `auto`.
        work: file of finished work, in an existing folder; None keeps it in memory.

    Raises:
        ValueError: there is no such device, another process is gone, or the file holds something else.
    """
    from storage.finished_work import FinishedWork

    processes, joined = Processes(*launched()), True
    if processes.size > 1:
        import torch
        import torch.distributed as dist

        from models.backbones import pick_device

        device, joined = local_device(device), dist.is_initialized()
        if device.startswith("cuda"):
            torch.cuda.set_device(pick_device(device))
        if not joined:
            dist.init_process_group(timeout=LONGEST_WAIT)
    finished = processes.gathered(None if processes.rank else FinishedWork(work))[0]
    if processes.rank:
        finished.path = None
    token = _current.set(replace(processes, work=finished))
    try:
        yield device
        processes.gathered(None)  # nothing is written unless all have come so far
    finally:
        _current.reset(token)
    if not joined:  # not after an error, when the others may still wait: torchrun ends them
        dist.destroy_process_group()


def local_device(wanted: str) -> str:
    """The GPU of this process where `wanted` is `cuda`, or `auto` on a machine with GPUs."""
    import torch

    if wanted == "cuda" or (wanted == "auto" and torch.cuda.is_available()):
        return f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
    return wanted
