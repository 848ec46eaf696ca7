"""Time systems in turn, each in its own process that stays alive between turns."""

from __future__ import annotations

import datetime
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from interventune.storage.provenance import versions


class Turn(NamedTuple):
    """The result of one turn of a system."""

    rate: float
    """Inputs per second; inputs are counted the same way for all systems."""
    notes: Mapping[str, float]


def in_turns(
    systems: Mapping[str, Callable[..., Turn]], turns: Sequence[tuple[Any, ...]]
) -> dict[str, list[Turn]]:
    """Run every system with the arguments of each turn; the first turn warms up and is dropped.

    Separate processes keep systems from sharing settings (threads, kernel caches). They are
    spawned, because a fork would inherit threads.
    """
    made: dict[str, list[Turn]] = {name: [] for name in systems}
    with ExitStack() as stack:
        pools = {
            name: stack.enter_context(ProcessPoolExecutor(1, mp_context=get_context("spawn")))
            for name in systems
        }
        for arguments in turns:
            for name, system in systems.items():
                made[name].append(pools[name].submit(system, *arguments).result())
    return {name: measured[1:] for name, measured in made.items()}


def table(title: str, unit: str, made: Mapping[str, Sequence[Turn]]) -> pd.DataFrame:
    """Return a row for each turn of each system, with the first system's speed-up in that turn."""
    ours, *_ = made.values()
    rows = [
        {
            "measured": title,
            "system": system,
            unit: turn.rate,
            "ours is faster by": own.rate / turn.rate,
        }
        | dict(turn.notes)
        for system, turns in made.items()
        for own, turn in zip(ours, turns, strict=True)
    ]
    return pd.DataFrame(rows)


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
    found = re.search(r"model name\s*: (.*)", cpuinfo.read_text() if cpuinfo.exists() else "")
    name = found[1] if found else platform.machine()
    if torch.cuda.is_available():
        name += f", {torch.cuda.get_device_name()}"
    packages = ", ".join(f"{package} {version}" for package, version in versions().items())
    return f"{datetime.date.today()}, {name}, {torch.get_num_threads()} threads, {packages}"
