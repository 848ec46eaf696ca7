"""Processes, forked by multiprocessing's server, which has imported torch: seconds less."""

import os
import runpy
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PRELOADED = ["cli", "sweep.run", "sweep.tpe", "modules.advice", "modules.qa"]
PRELOADED = [f"interventune.training.{name}" for name in PRELOADED]
PRELOADED += ["interventune.data_modules.groups_data", "interventune.evaluation.protocols.shift"]
PRELOADED += ["torch._dynamo", "torchmetrics.text", "transformers.models.roberta.modeling_roberta"]
get_context("forkserver").set_forkserver_preload(PRELOADED)


class Started(ForkServerProcess):
    """A function that runs in a process of its own; its output is kept in a file."""

    def __init__(self, function: Callable[..., Any], *arguments: Any, **environment: str) -> None:
        super().__init__(target=function, args=arguments)
        self.environment, (_, self.log) = environment, tempfile.mkstemp()
        self.start()

    def run(self) -> None:
        from lightning_utilities.core.rank_zero import rank_zero_only

        os.environ.update(self.environment)
        rank_zero_only.rank = int(os.environ.get("RANK", 0))  # which is read when it is imported
        log = os.open(self.log, os.O_WRONLY | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(log, stream)
        super().run()

    def end(self, limit_s: float = 300) -> tuple[int | None, str]:
        """Its exit code, and what it printed; killed after some seconds."""
        self.join(limit_s)
        self.kill()
        self.join()
        with open(self.log) as log:
            return self.exitcode, log.read()


def wait_for(condition: Callable[[], Any], seconds: float = 240) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def run_module(room: str, arguments: Sequence[str], checkout: Path = ROOT) -> None:
    """`python -m interventune.ROOM ...` in a checkout; another one's packages are imported anew."""
    module = f"interventune.{room}"
    if checkout != ROOT:
        for name in [name for name in sys.modules if name.partition(".")[0] == "interventune"]:
            del sys.modules[name]
        sys.path.insert(0, str(checkout))
    os.chdir(checkout)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def launch(room: str, arguments: Sequence[str], processes: int = 1) -> tuple[int, str]:
    """`python -m interventune.ROOM ...`, or torchrun of it: the first exit code but 0, output."""
    with socket.socket() as free:
        free.bind(("", 0))
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    world = {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes), "GROUP_RANK": "0"}
    world |= {"TORCHELASTIC_RUN_ID": "tests", **meeting}
    ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank), **world} for rank in range(processes)]
    environments = ranks if processes > 1 else [{}]
    started = [Started(run_module, room, arguments, **environment) for environment in environments]
    while any(one.is_alive() for one in started) and not any(one.exitcode for one in started):
        time.sleep(0.05)
    ends = [process.end(10) for process in started]
    return next((code for code, _ in ends if code), 0), "".join(said for _, said in ends)


def on_two_ranks(function: Callable[[int, str], Any], folder: Path, limit_s: float = 120) -> None:
    """Call it in two processes, with the rank and the folder; fail with what they print."""
    ends = end_on_two_ranks(function, folder, limit_s)
    assert [code for code, _ in ends] == [0, 0], "\n".join(said for _, said in ends)


def end_on_two_ranks(
    function: Callable[[int, str], Any], folder: Path, limit_s: float = 120
) -> list[tuple[int | None, str]]:
    """The same, however they end: their exit codes, and what they print."""
    started = [Started(function, rank, str(folder)) for rank in (0, 1)]
    return [process.end(limit_s) for process in started]
