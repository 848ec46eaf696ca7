"""Several processes for one evaluation, whatever the protocol.

torchrun --standalone --nproc_per_node 2 -m evaluation PROTOCOL ... --output DIR

Every process reads all data and opens every model. Where requests are answered, each answers its share, and
all get all answers (`shared`, `shared_rows`): behind that line every process computes the same, and no
protocol knows how many there are. The first alone keeps finished work, writes and prints. Without torchrun
there is one process, and everything here does nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from functools import wraps
from itertools import islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from evaluation.protocol import launched
from storage.command_line import one_line

if TYPE_CHECKING:
    from storage.finished_work import FinishedWork

T = TypeVar("T")
Method = TypeVar("Method", bound=Callable[..., Any])

LONGEST_WAIT = timedelta(hours=12)
"""For a process whose share takes longer, or that writes sentences for all. If it dies, the others end."""

BLOCK = 32
"""Answers that a process gives between two exchanges: what its end costs at most, where answers are kept."""

LATER_S = 10.0
"""Before a process tells an error that another is about to tell, or that has ended the others already."""


class KnownError(ValueError):
    """An error that all processes know: the first tells it."""


@dataclass(frozen=True)
class Processes:
    """Which process this is.

    Args:
        rank: 0 for the one that writes and prints.
        size: how many there are.
        group: torch's group in which answers travel; None for one process.
    """

    rank: int = 0
    size: int = 1
    group: Any = None

    def exchange(self, make: Callable[[], T]) -> list[T]:
        """What `make` returns in each process, by rank.

        Raises:
            KnownError: it failed in a process (which raises its own error unless it is the user's to mend).
            ValueError: a process is gone.
        """
        if self.size == 1:
            return [make()]
        import torch.distributed as dist

        value, error, told = None, None, ""
        before = _current.set(ALONE)  # what is divided is not divided again
        try:
            value = make()
        except (ValueError, OSError) as mistake:
            told = one_line(mistake)
        except Exception as defect:
            error, told = defect, f"{type(defect).__name__}: {defect}".splitlines()[0]
        finally:
            _current.reset(before)
        received: list[Any] = [None] * self.size
        try:
            dist.all_gather_object(received, (value, told), group=self.group)
        except RuntimeError as lost:
            if error is not None:
                raise error from lost
            time.sleep(LATER_S / 2)
            raise ValueError(
                "another process has ended; if it says nothing itself, it was killed, as for want of memory"
            ) from lost
        if error is not None:
            raise error
        for rank, (_, told) in enumerate(received):
            if told:
                raise KnownError(told + (f" (process {rank})" if rank else ""))
        return [value for value, _ in received]

    def share(self, requests: Iterable[Any], answer: Callable[[Sequence[Any]], Iterable[T]]) -> Iterator[T]:
        """The answer to each request, in their order; `answer` gets those of this process. Requests may be an
        iterator, which every process runs through; then `answer` gets one, too."""
        part: Any = (
            requests[self.rank :: self.size]
            if isinstance(requests, Sequence)
            else islice(requests, self.rank, None, self.size)
        )

        def answered() -> Iterator[T]:
            if not isinstance(part, Sequence) or len(part):
                yield from answer(part)

        own, nothing = answered(), object()
        while any(blocks := self.exchange(lambda: list(islice(own, BLOCK)))):
            for column in zip_longest(*blocks, fillvalue=nothing):
                yield from (cast(T, one) for one in column if one is not nothing)

    def share_rows(self, requests: Sequence[Any], answer: Callable[[Sequence[Any]], Any]) -> Any:
        """The same of answers that are the rows of an array or a tensor, on the CPU."""
        import numpy as np
        import torch

        part = requests[self.rank :: self.size]
        parts = self.exchange(lambda: answer(part) if len(part) else None)
        first: Any = parts[0] if len(requests) else answer(part)
        whole = np.empty((len(requests), *first.shape[1:]), dtype=np.asarray(first).dtype)
        for rank, rows in enumerate(parts):
            if rows is not None:
                whole[rank :: self.size] = rows
        return torch.from_numpy(whole) if isinstance(first, torch.Tensor) else whole


ALONE = Processes()
_current: ContextVar[Processes] = ContextVar("processes")


def current() -> Processes:
    """Those of the evaluation that is under way."""
    return _current.get(ALONE)


def shared(method: Method) -> Method:
    """For a method, or a function of a model, whose first argument is requests and that gives an answer for
    each, in order: processes divide the requests, and all get all answers, as an iterator."""

    @wraps(method)
    def divided(asked: Any, requests: Iterable[Any], *more: Any, **named: Any) -> Any:
        processes = current()
        if processes.size == 1:
            return method(asked, requests, *more, **named)
        return processes.share(requests, lambda part: method(asked, part, *more, **named))

    return cast(Method, divided)


def shared_rows(method: Method) -> Method:
    """The same where the answers are the rows of an array or a tensor."""

    @wraps(method)
    def divided(asked: Any, requests: Sequence[Any], *more: Any, **named: Any) -> Any:
        processes = current()
        if processes.size == 1:
            return method(asked, requests, *more, **named)
        return processes.share_rows(requests, lambda part: method(asked, part, *more, **named))

    return cast(Method, divided)


def from_first(make: Callable[[], T]) -> T:
    """What `make` returns in the first process, everywhere; the others do not call it."""
    processes = current()
    return cast(T, processes.exchange(make if processes.rank == 0 else lambda: None)[0])


def finished_work(path: Path | None, required: tuple[str, ...] = ()) -> FinishedWork:
    """Finished work that all processes know, and the first alone keeps in the file."""
    from storage.finished_work import FinishedWork  # short protocols do without it

    work = from_first(lambda: FinishedWork(path, required=required))
    if current().rank:
        work.path = None
    return work


@contextmanager
def process_group(device: str) -> Iterator[str]:
    """Join the other processes; gives the device of this one for the user's wish `--device`.

    Raises:
        ValueError: fewer GPUs than processes, or one device for all of them; at its end, another process has
            failed.
    """
    rank, size = launched()
    if size == 1:
        yield device
        return
    import torch
    import torch.distributed as dist

    device = local_device(device, size, torch.cuda.device_count())
    joined = dist.is_initialized()
    if not joined and device.startswith("cuda"):
        torch.cuda.set_device(torch.device(device))
        dist.init_process_group("nccl", device_id=torch.device(device))
    elif not joined:
        dist.init_process_group("gloo")
    processes = Processes(rank, size, dist.new_group(backend="gloo", timeout=LONGEST_WAIT))
    before = _current.set(processes)
    try:
        yield device
        processes.exchange(lambda: None)  # nothing is written unless all have come so far
    finally:
        _current.reset(before)
    # Not in the `finally`: after an error the others may still wait, and torchrun ends them.
    if not joined:
        dist.destroy_process_group()


def local_device(wanted: str, size: int, gpus: int) -> str:
    """The device of this process: its own GPU where `wanted` is `cuda`, or `auto` on a machine with GPUs.

    Raises:
        ValueError: as in `process_group`.
    """
    if wanted == "auto":
        wanted = "cuda" if gpus else "cpu"
    if wanted.startswith("cuda:"):
        raise ValueError(f"--device {wanted}: {size} processes need a GPU each; write --device cuda")
    if wanted != "cuda":
        return wanted
    local, here = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("LOCAL_WORLD_SIZE", size))
    if here > gpus:
        raise ValueError(
            f"{here} processes on a machine with {gpus} GPUs; start as many as GPUs (--nproc_per_node {gpus})"
            if gpus
            else "--device cuda: torch sees no GPU here"
        )
    return f"cuda:{local}"
