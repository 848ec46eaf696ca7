"""Several processes on one protocol.

torchrun --standalone --nproc_per_node 2 -m interventune.evaluation PROTOCOL ... --output DIR

Every process reads all data and opens every model. Each answers its share of the requests, and all
get all answers (sharing.py): after that line all processes compute the same, and protocols need not
know their number. Only the first stores finished work, writes and prints.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interventune.storage.finished_work import FinishedWork


@dataclass(frozen=True)
class Processes:
    """The rank of this process, the number of processes, and the file of finished work (None: in
    memory).
    """

    rank: int = 0
    size: int = 1
    path: Path | None = None

    @cached_property
    def work(self) -> FinishedWork:
        """All finished work, which the first process reads and stores; a collective operation."""
        from interventune.storage.finished_work import FinishedWork

        work: FinishedWork = self.gathered(None if self.rank else FinishedWork(self.path))[0]
        if self.rank:
            work.path = None
        return work

    def gathered(self, value: Any) -> list[Any]:
        """Return the value of each process, by rank; ValueError if a process is gone."""
        if self.size == 1:
            return [value]
        from interventune.evaluation.answering.torchrun import gathered

        return gathered(value)


def launched() -> tuple[int, int]:
    """Return rank and number of processes, as torchrun sets them; (0, 1) without it."""
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


current: ContextVar[Processes] = ContextVar("processes")


@contextmanager
def process_group(device: str, work: Path | None = None) -> Iterator[str]:
    """Join the other processes of torchrun, if any, and resume from the file of finished work, in
    an existing folder (None: in memory). Yields this process's device for the user's `--device`:
    with several processes, each has its own GPU for `cuda` and `auto`. ValueError without a GPU, or
    if another process is gone.
    """
    processes = Processes(*launched(), work)
    meeting: AbstractContextManager[str] = nullcontext(device)
    if processes.size > 1:
        from interventune.evaluation.answering.torchrun import joined

        meeting = joined(device)
    with meeting as own:
        token = current.set(processes)
        try:
            yield own
            processes.gathered(None)  # nothing is written unless all have come this far
        finally:
            current.reset(token)
