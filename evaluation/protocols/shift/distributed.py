"""Several processes for one evaluation.

torchrun --nproc_per_node 2 -m evaluation shift --checkpoint PATH --data SOURCE --output DIR

Every process reads all data in the same order and scores its share of the batches; sums are added up by the
metrics themselves, lines of text come to the first process, which alone writes and prints. Without torchrun
there is one process, and everything here does nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TextIO, TypeVar

T = TypeVar("T")

PATIENCE = timedelta(hours=12)
"""How long processes wait for the first, which may be writing sentences. If it dies, torchrun ends them."""

_BLOCK = 1 << 20
"""Characters of lines that a process sends at a time."""


@dataclass(frozen=True)
class Processes:
    """Which process this is.

    Args:
        rank: 0 for the one that writes and prints.
        size: how many there are.
        device: what this one computes on, by torch's name.
        group: torch's group in which texts and records travel; None for one process.
    """

    rank: int = 0
    size: int = 1
    device: str = "auto"
    group: Any = None

    @property
    def first(self) -> bool:
        """Whether this process writes and prints."""
        return self.rank == 0

    def from_first(self, make: Callable[[], T]) -> T:
        """What `make` returns in the first process, everywhere; the others do not call it."""
        if self.size == 1:
            return make()
        import torch.distributed as dist

        made: list[T | None] = [make() if self.first else None]
        dist.broadcast_object_list(made, src=0, group=self.group)
        return made[0]  # type: ignore[return-value]

    def gather_lines(self, file: TextIO, new_file: Callable[[], TextIO]) -> list[TextIO]:
        """The files of all processes, by rank, in the first; none in the others.

        Every process gives its own file of lines, which is read from the start; what comes from the others
        goes, a block at a time, into files that `new_file` opens. All returned files stand at their start.
        """
        file.seek(0)
        if self.size == 1:
            return [file]
        import torch.distributed as dist

        files = [file, *(new_file() for _ in range(1, self.size))] if self.first else []
        while True:
            mine = "" if self.first else "".join(file.readlines(_BLOCK))
            received = [""] * self.size
            # Everybody gets every block, so that everybody knows when the last one has come.
            dist.all_gather_object(received, mine, group=self.group)
            if not any(received):
                break
            for rank in range(1, len(files)):
                files[rank].write(received[rank])
        for one in files:
            one.seek(0)
        return files


def launched() -> tuple[int, int]:
    """Rank and number of processes, as torchrun tells them; (0, 1) without it."""
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


@contextmanager
def process_group(device: str) -> Iterator[Processes]:
    """Join the other processes; `device` is the user's wish, as `--device` takes it.

    Raises:
        ValueError: fewer GPUs than processes, or one device for all of them.
    """
    rank, size = launched()
    if size == 1:
        yield Processes(device=device)
        return
    import torch
    import torch.distributed as dist

    device = local_device(device, size, torch.cuda.device_count())
    if device.startswith("cuda"):
        torch.cuda.set_device(torch.device(device))
        dist.init_process_group("nccl", device_id=torch.device(device))
    else:
        dist.init_process_group("gloo")
    yield Processes(rank, size, device, dist.new_group(backend="gloo", timeout=PATIENCE))
    # Not in a `finally`: after an error the others may still wait, and torchrun ends them.
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
