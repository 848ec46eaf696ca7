"""Systems take turns, each in a process of its own that stays alive between its turns."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from typing import Any, TypeVar

Made = TypeVar("Made")
Call = Callable[..., Any]


@contextmanager
def players(names: Sequence[str], *, apart: bool = True) -> Iterator[Mapping[str, Call]]:
    """For each name a function `call(function, *arguments)` that runs in the process of that name.

    Own processes keep systems from each other's settings (threads, caches of kernels, peak memory), and let
    the second turn find everything warm.

    Args:
        names: of the systems.
        apart: False runs everything in this process, which is quicker where figures do not matter.
    """
    if not apart:
        yield {name: lambda function, *arguments: function(*arguments) for name in names}
        return
    with ExitStack() as stack:
        pools = {
            # Spawned: a fork would inherit threads that this process has already started.
            name: stack.enter_context(
                ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_quiet)
            )
            for name in names
        }
        yield {name: _submit(pool) for name, pool in pools.items()}


def _submit(pool: ProcessPoolExecutor) -> Call:
    return lambda function, *arguments: pool.submit(function, *arguments).result()


def in_turns(systems: Sequence[str], turns: int, play: Callable[[str, int], Made]) -> dict[str, list[Made]]:
    """`play(system, turn)` for every system in turn 0, then for every system in turn 1, and so on."""
    made: dict[str, list[Made]] = {name: [] for name in systems}
    for turn in range(turns):
        for name in systems:
            made[name].append(play(name, turn))
    return made


def _quiet() -> None:
    """In a player's process: figures are asked for, not what libraries have to say."""
    from datasets.utils.logging import disable_progress_bar
    from transformers.utils.logging import set_verbosity_error

    disable_progress_bar()
    set_verbosity_error()
    warnings.filterwarnings("ignore")
    for name in ("pytorch_lightning", "pytorch_lightning.utilities.rank_zero", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
