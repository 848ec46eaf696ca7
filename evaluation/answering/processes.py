"""Several processes on one protocol.

torchrun --standalone --nproc_per_node 2 -m evaluation PROTOCOL ... --output DIR

Every process reads all data and opens every model. Where requests are answered, each answers its share, and
all get all answers (`shared`): after that line every process computes the same, and no protocol knows how
many there are. The first alone keeps finished work, writes and prints.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from storage.finished_work import FinishedWork

Method = TypeVar("Method", bound=Callable[..., Any])

LONGEST_WAIT = timedelta(hours=12)
"""For a process whose share takes longer than another's."""


@dataclass(frozen=True)
class Processes:
    """Which process this is, of how many, and the file of what they have finished (None: in memory)."""

    rank: int = 0
    size: int = 1
    path: Path | None = None

    @cached_property
    def work(self) -> FinishedWork:
        """What all have finished, which the first reads and keeps; all ask for it at once."""
        from storage.finished_work import FinishedWork

        work: FinishedWork = self.gathered(None if self.rank else FinishedWork(self.path))[0]
        if self.rank:
            work.path = None
        return work

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


current: ContextVar[Processes] = ContextVar("processes")


def shared(method: Method) -> Method:
    """For a method, or a function of a model, whose first argument is requests and that gives an answer for
    each, in order, as a list, an iterator, or the rows of a tensor: processes divide the requests (who gets
    none is not asked), and all get all answers."""

    @wraps(method)
    def divided(model: Any, requests: Iterable[Any], *more: Any, **named: Any) -> Any:
        processes = current.get(Processes())
        if processes.size == 1:
            return method(model, requests, *more, **named)
        import torch

        requests, answers = list(requests), None
        share = requests[processes.rank :: processes.size]
        token = current.set(Processes())  # what is divided is not divided again
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


@contextmanager
def process_group(device: str, work: Path | None = None) -> Iterator[str]:
    """Join the other processes of torchrun, if any, and go on from finished work; gives the device of this
    process for the user's `--device`.

    Args:
        device: what the user asked for; of several processes each has its own GPU for `cuda` and `auto`.
        work: file of finished work, in an existing folder; None keeps it in memory.

    Raises:
        ValueError: there is no such device, or another process is gone.
    """
    processes, joined = Processes(*launched(), work), True
    if processes.size > 1:
        import torch
        import torch.distributed as dist

        from models.backbones import pick_device

        device, joined = local_device(device), dist.is_initialized()
        if device.startswith("cuda"):
            torch.cuda.set_device(pick_device(device))
        if not joined:
            dist.init_process_group(timeout=LONGEST_WAIT)
    token = current.set(processes)
    try:
        yield device
        processes.gathered(None)  # nothing is written unless all have come so far
    finally:
        current.reset(token)
    if not joined:  # not after an error, when the others may still wait: torchrun ends them
        dist.destroy_process_group()


def local_device(wanted: str) -> str:
    """The GPU of this process where `wanted` is `cuda`, or `auto` on a machine with GPUs."""
    import torch

    if wanted == "cuda" or (wanted == "auto" and torch.cuda.is_available()):
        return f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
    return wanted
