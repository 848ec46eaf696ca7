"""Systems take turns, each in a process of its own that stays alive between its turns."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")
Call = Callable[..., Any]


@contextmanager
def own_processes(names: Iterable[str], *, apart: bool = True) -> Iterator[Mapping[str, Call]]:
    """For each name a function `call(function, *arguments)` that runs in the process of that name.

    Own processes keep systems from each other's settings (threads, caches of kernels, peak memory), and let
    the second turn find everything warm.

    Args:
        names: of the systems.
        apart: False runs everything in this process, which is quicker where figures do not matter.
    """
    with ExitStack() as stack:
        calls: dict[str, Call] = {}
        for name in names:
            if not apart:
                calls[name] = lambda function, *arguments: function(*arguments)
                continue
            # Spawned: a fork would inherit threads that this process has already started.
            made = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_quiet)
            pool = stack.enter_context(made)
            calls[name] = lambda *task, pool=pool: pool.submit(*task).result()
        yield calls


def in_turns(systems: Iterable[str], turns: int, run: Callable[[str, int], T]) -> dict[str, list[T]]:
    """`run(system, turn)` for every system in turn 0, then for every system in turn 1, and so on."""
    made: dict[str, list[T]] = {name: [] for name in systems}
    for turn in range(turns):
        for name, values in made.items():
            values.append(run(name, turn))
    return made


class Turn(NamedTuple):
    """What a system did in one turn.

    Args:
        figure: how fast it was, in units of the benchmark.
        notes: seconds, sizes, peak memory; medians are reported.
        found: what systems are to agree on.
    """

    figure: float
    notes: dict[str, float]
    found: Any = None


def side_by_side(
    systems: Mapping[str, Callable[..., Turn]],
    repeats: int,
    *,
    apart: bool,
    timed: Callable[[int], tuple[Any, ...]],
    warm: tuple[Any, ...],
) -> dict[str, list[Turn]]:
    """Every system's turns, after a warm-up.

    Args:
        systems: functions that a process of its own can import.
        repeats: how many turns.
        apart: as in `own_processes`.
        timed: arguments of all systems in a turn.
        warm: those of the warm-up.
    """
    with own_processes(systems, apart=apart) as call:
        for name, system in systems.items():
            call[name](system, *warm)
        return in_turns(systems, repeats, lambda name, turn: call[name](systems[name], *timed(turn)))


def _quiet() -> None:
    """Figures are asked for, not what libraries have to say."""
    from datasets.utils.logging import disable_progress_bar
    from transformers.utils.logging import set_verbosity_error

    disable_progress_bar()
    set_verbosity_error()
    warnings.filterwarnings("ignore")
    for name in ("pytorch_lightning", "pytorch_lightning.utilities.rank_zero", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
