"""Time systems in turn, each in its own process that stays alive between turns."""

import datetime
import platform
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import torch

from interventune.storage.documents import Values, load_yaml
from interventune.storage.provenance import versions

Size = Literal["cpu", "gpu"]


@dataclass(frozen=True)
class Shape:
    """A model with random weights and, for training, the questions per turn and the batch size."""

    architecture: str
    config: Values
    questions: int = 0
    lengths: tuple[int, ...] = ()
    batch_size: int = 16


SHAPES = load_yaml(Path(__file__).with_name("shapes.yaml"), dict[str, dict[Size, Shape]])
"""By what is measured."""


class Turn(NamedTuple):
    """The result of one turn of a system."""

    rate: float
    """Inputs per second; inputs are counted the same way for all systems."""
    notes: dict[str, float]


def timed(count: float, tokens: float, seconds: float) -> Turn:
    """Return the rate of `count` inputs, with tokens per second and, on a GPU, the largest memory
    since the last call, in GiB.
    """
    notes = {"tokens/s": tokens / seconds}
    if torch.cuda.is_available():
        notes["GiB"] = torch.cuda.max_memory_allocated() / 2**30
        torch.cuda.reset_peak_memory_stats()
    return Turn(count / seconds, notes)


def now() -> float:
    """Return the time in seconds, after pending GPU work has finished."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def in_turns(
    title: str, unit: str, systems: Mapping[str, Callable[[Any], Turn]], turns: Iterable[Any]
) -> pd.DataFrame:
    """Run every system with the argument of each turn and return the table of all turns but the
    first, which warms up.

    Separate processes keep systems from sharing settings (threads, kernel caches). They are
    spawned, because a fork would inherit threads.
    """
    rows = list[Values]()
    with ExitStack() as stack:
        pools = {
            name: stack.enter_context(ProcessPoolExecutor(1, mp_context=get_context("spawn")))
            for name in systems
        }
        for argument in turns:
            turn = {
                name: pools[name].submit(system, argument).result()
                for name, system in systems.items()
            }
            rows += compared(title, unit, turn)
    return pd.DataFrame(rows[len(systems) :])


def compared(title: str, unit: str, turn: Mapping[str, Turn]) -> list[Values]:
    """Return a row for each system in a turn, with the first system's speed-up."""
    ours, *_ = turn.values()
    return [
        {
            "measured": title,
            "system": system,
            unit: result.rate,
            "ours is faster by": ours.rate / result.rate,
            **result.notes,
        }
        for system, result in turn.items()
    ]


def shown(turns: pd.DataFrame) -> str:
    """Format medians over turns with their range."""
    keys = ["measured", "system"]
    lines = turns.groupby(keys, sort=False).agg(spread).reset_index()
    return f"\n{lines.to_string(index=False)}\n"


def spread(values: Sequence[float]) -> str:
    """Format the median and the range.

    >>> spread([2.0, 1.0, 4.0])
    '2 (1 to 4)'
    """
    low, middle, high = (f"{value:.4g}" for value in np.quantile(values, [0, 0.5, 1]))
    return middle if low == high else f"{middle} ({low} to {high})"


def machine() -> str:
    """Return the date, the processor and the versions on which the figures were measured."""
    cpuinfo = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.*)", cpuinfo.read_text() if cpuinfo.exists() else "")
    name = model[1] if model else platform.machine()
    if torch.cuda.is_available():
        name += f", {torch.cuda.get_device_name()}"
    packages = ", ".join(f"{package} {version}" for package, version in versions().items())
    return f"{datetime.date.today()}, {name}, {torch.get_num_threads()} threads, {packages}"
