"""Requests to models: divided among processes, and answered only once.

torchrun --standalone --nproc_per_node 2 -m interventune.evaluation PROTOCOL ... --output DIR

Every process reads all data and opens every model. Each answers its share of the requests, and all
get all answers (`shared`): after that line all processes compute the same, and protocols need not
know their number. Only the first stores finished work (`stored`), writes and prints.
"""

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property, wraps
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TypeVar, cast

from interventune.models.language.text_models import TextFailure
from interventune.storage.documents import atomic_text, plain_json
from interventune.storage.finished_work import FinishedWork, work_key
from interventune.storage.provenance import logged_warnings

Method = TypeVar("Method", bound=Callable[..., Any])

log = logging.getLogger(__name__)

CHUNK = 1024
"""Number of answers between two exchanges of several processes, the most that an interruption
loses.
"""
LONGEST_WAIT = timedelta(hours=12)
"""Time limit for a process whose share takes longer than another's."""


@dataclass(frozen=True)
class Processes:
    """The rank of this process, the number of processes, the file of finished work (None: in
    memory), and the folder for the rows of whole models (None: they are not stored).
    """

    rank: int = 0
    size: int = 1
    path: Path | None = None
    rows: Path | None = None

    @cached_property
    def work(self) -> FinishedWork:
        """All finished work, which the first process reads and stores; a collective operation."""
        work: FinishedWork = self.gathered(None if self.rank else FinishedWork(self.path))[0]
        if self.rank:
            work.path = None
        return work

    def gathered(self, value: Any) -> list[Any]:
        """Return the value of each process, by rank; ValueError if a process is gone."""
        values: list[Any] = [value] * self.size
        if self.size > 1:
            import torch.distributed as dist

            try:
                dist.all_gather_object(values, value)
            except RuntimeError as error:
                raise ValueError(
                    "another process has ended, by its own error or for want of memory"
                ) from error
        return values


current: ContextVar[Processes] = ContextVar("processes")


def launched() -> tuple[int, int]:
    """Return rank and number of processes, as torchrun sets them; (0, 1) without it."""
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


@contextmanager
def process_group(device: str, work: Path | None = None, rows: Path | None = None) -> Iterator[str]:
    """Join the other processes of torchrun, if any, and resume from finished work (see `Processes`)
    in an existing folder. Yields this process's device for the user's `--device`. ValueError
    without a GPU, or if another process is gone.
    """
    processes = Processes(*launched(), work, rows)
    joins = False
    if processes.size > 1:
        import torch
        import torch.distributed as dist

        from interventune.models.backbones import pick_device

        device = local_device(device)
        joins = not dist.is_initialized()
        if device.startswith("cuda"):
            torch.cuda.set_device(pick_device(device))
        if joins:
            dist.init_process_group(timeout=LONGEST_WAIT)
    token = current.set(processes)
    try:
        yield device
        processes.gathered(None)  # nothing is written unless all have come this far
    finally:
        current.reset(token)
    if joins:  # not after an error, when the others may still wait: torchrun ends them
        dist.destroy_process_group()


class StoredRows:
    """Rows in a temporary file, where rows of whole models or finished work are stored; every loop
    reads them anew.
    """

    def __init__(self) -> None:
        processes = current.get(Processes())
        folder = processes.rows or (processes.path and processes.path.parent)
        self.file = TemporaryFile("w+", dir=folder)  # noqa: SIM115

    def keep(self, row: Any) -> None:
        """Add a row."""
        self.file.write(as_line(row))

    def __iter__(self) -> Iterator[Any]:
        self.file.seek(0)
        return map(json.loads, self.file)


def as_line(value: Any) -> str:
    """Return a line of JSON, with NaN and infinities."""
    return json.dumps(value, default=plain_json) + "\n"


def once(path: str, make: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    """Return what `make` yields for the model at `path`; with a folder for rows, as plain JSON,
    which is stored there until the model changes, with the warnings.
    """
    folder = current.get(Processes()).rows
    if folder is None:
        yield from make()
        return
    stored = rows_file(folder, path)
    new = not stored.exists()
    if new:
        with atomic_text(stored) as file, logged_warnings() as texts:
            file.writelines(map(as_line, make()))
            file.write(as_line([*texts]))
    for value in map(json.loads, stored.open()):
        if not isinstance(value, list):
            yield value
        elif not new:
            repeat(value)


def repeat(warnings: Iterable[str]) -> None:
    """Log the warnings of stored work again."""
    for text in warnings:
        log.warning(text)


def rows_file(folder: Path, path: str) -> Path:
    """Return the file for the rows of a model, which is named after its path, size and time; the
    latest one if the model has been deleted.
    """
    name = work_key(path=os.path.abspath(path))[:16]
    local = Path(path.removeprefix("hf:"))
    files = [file for file in [local, *local.glob("*")] if file.is_file()]
    if not files:
        of_path = folder.glob(f"{name}-*.jsonl")
        return max(
            of_path, key=lambda file: file.stat().st_mtime, default=folder / f"{name}-.jsonl"
        )
    stats = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in sorted(files)]
    return folder / f"{name}-{work_key(files=stats)[:16]}.jsonl"


def local_device(device: str) -> str:
    """Return the GPU of this process for `cuda`, or for `auto` on a machine with GPUs."""
    import torch

    if device == "cuda" or (device == "auto" and torch.cuda.is_available()):
        return f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
    return device


def shared(method: Method) -> Method:
    """Divide the requests of a call among processes (one without requests does nothing); all get
    all answers. For a method, or a function of a model, whose first argument is requests and that
    returns one answer per request, in order, as a list, an iterator, or the rows of a tensor.
    """

    @wraps(method)
    def divided(model: Any, requests: Iterable[Any], *more: Any, **named: Any) -> Any:
        processes = current.get(Processes())
        requests = list(requests)
        size = processes.size
        if size == 1 or not requests:
            return method(model, requests, *more, **named)
        import torch

        share = requests[processes.rank :: size]
        answers = None
        token = current.set(Processes())  # no further division inside
        try:
            if share:
                answers = method(model, share, *more, **named)
                answers = answers if isinstance(answers, torch.Tensor) else list(answers)
        finally:
            current.reset(token)
        shares = processes.gathered(answers)
        whole = [shares[i % size][i // size] for i in range(len(requests))]
        return torch.stack(whole) if isinstance(shares[0], torch.Tensor) else whole

    return cast(Method, divided)


def stored(method: Method) -> Method:
    """`shared` for answers that take long and are plain JSON: none is computed twice. Each is
    stored in the finished work, under the model's `identity`, the method, the request, and other
    arguments. Requests are plain JSON, or dataclasses of it; a `TextFailure` is not stored. The
    warnings are stored, too, under all but the request.

    The answers come as an iterator. One process stores each at once, several store `CHUNK` at a
    time.
    """
    divided = shared(method)

    @wraps(method)
    def answered(model: Any, requests: Iterable[Any], *more: Any, **named: Any) -> Iterator[Any]:
        work = current.get(Processes()).work
        requests = list(requests)
        name = f"{method.__module__}.{method.__qualname__}"
        parts = {"model": model.identity, "method": name, "arguments": [more, named]}
        keys = [work_key(**plain_json({**parts, "request": request})) for request in requests]
        pairs = zip(keys, requests, strict=True)
        work.asked.update(work.keys() & keys)
        waiting = {key: request for key, request in pairs if key not in work}
        missing = [*waiting.values()]
        failures = dict[str, TextFailure]()
        chunks = (missing[start : start + CHUNK] for start in range(0, len(missing), CHUNK))
        answers = chain.from_iterable(divided(model, chunk, *more, **named) for chunk in chunks)
        warned = work_key(**plain_json(parts))
        if len(waiting) < len({*keys}) and warned in work.keys() - work.new:
            work.new.add(warned)
            repeat(work[warned])
        for key in keys:
            if key in waiting:
                del waiting[key]
                with logged_warnings() as texts:
                    answer = next(answers)
                if texts:
                    work.keep(warned, [*dict.fromkeys([*work.get(warned, []), *texts])])
                if isinstance(answer, TextFailure):
                    failures[key] = answer
                else:
                    work.keep(key, answer)
            yield failures.get(key) or work[key]

    return cast(Method, answered)
