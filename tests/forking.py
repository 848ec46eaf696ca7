"""A Python that begins with torch, Lightning and transformers imported.

To import them costs a process seconds: more than most tests that start one need. A server imports them once,
does nothing else, and forks itself for every `PYTHON -m MODULE ...` that is run in the repository's root, and
for the workers of pytest-xdist.
Streams, environment, signals and exit code are those of the caller, who sees an ordinary process. The
interpreter itself runs whatever else `PYTHON` is given. Forked processes start their own in the same way.

conftest.py starts the server beside a run of the tests; it imports when it is first asked.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

VARIABLE = "INTERVENTUNE_TESTS_PYTHON"
"""Names the stand-in for the interpreter."""
IMPORTED = (
    "training.cli",
    "training.sweep.run",
    "torch._dynamo",
    "evaluation.protocols.shift",
    "torchmetrics.text",
    "alembic",
    "data_modules.groups_data",
    "sqlalchemy.dialects.sqlite",
    "training.modules.advice",
    "training.modules.qa",
    "transformers.models.roberta.modeling_roberta",
)
ROOT = Path(__file__).resolve().parents[1]
RANKS = ("RANK", "LOCAL_RANK", "SLURM_PROCID")
NUMBER = struct.Struct("!i")
LOOK_S = 5.0
"""How often the server looks whether the run of the tests is still there."""


def python() -> str:
    """The stand-in, or without a server the interpreter."""
    return os.environ.get(VARIABLE, sys.executable)


def on_two_ranks(function: Callable[[int, str], object], folder: Path, limit_s: float = 120) -> None:
    """Call it in two processes, with the rank and the folder; fail with what one of them says."""
    codes, said = ended_on_two_ranks(function, folder, limit_s)
    assert codes == [0, 0], "\n".join(said)


def ended_on_two_ranks(
    function: Callable[[int, str], object], folder: Path, limit_s: float = 120
) -> tuple[list[int], list[str]]:
    """The same, however they end: their exit codes, and what they say on stderr."""
    words = (python(), "-m", "tests.forking", function.__module__, function.__name__)
    started = [
        subprocess.Popen([*words, str(rank), str(folder)], cwd=ROOT, stderr=subprocess.PIPE, text=True)
        for rank in (0, 1)
    ]
    try:
        said = [process.communicate(timeout=limit_s)[1] for process in started]
    finally:
        for process in started:
            process.kill()
    return [process.returncode for process in started], said


@contextmanager
def server() -> Iterator[None]:
    """Let `python` be the stand-in."""
    if not hasattr(os, "pidfd_open"):  # of Linux
        yield
        return
    with tempfile.TemporaryDirectory(prefix="python") as folder:
        stand_in, address = Path(folder) / "python", Path(folder) / "socket"
        stand_in.write_text(f'#!/bin/sh\nexec "{sys.executable}" -SEP "{__file__}" "{address}" "$@"\n')
        stand_in.chmod(0o755)
        command = [sys.executable, "-m", "tests.forking", str(address), str(stand_in)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        process.stdout.read()  # to its end, when the server listens
        os.environ[VARIABLE] = str(stand_in)
        try:
            yield
        finally:
            del os.environ[VARIABLE]
            process.terminate()
            process.wait()


def serve(address: str, stand_in: str) -> None:
    """Fork a process for everyone who connects, until the process that started the server is gone."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    listener.settimeout(LOOK_S)
    parent, real = os.getppid(), sys.executable
    os.dup2(0, 1)  # ends what the caller reads
    while os.getppid() == parent:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            continue
        if sys.executable == real:
            sys.executable = stand_in  # which modules keep when they are imported
            atexit.register(leave)  # the first, which is called last
            for name in IMPORTED:
                importlib.import_module(name)
            gc.freeze()
        if os.fork() == 0:
            listener.close()
            attend(connection)
        connection.close()


exit_codes: list[int] = []
"""Of this process, once it is known."""


def leave() -> None:
    """End at once: to take all modules to pieces costs as much as to import some."""
    if exit_codes:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_codes[0])


def attend(connection: socket.socket) -> None:
    """Run a caller's command in a process of its own; report its end, or kill it when the caller is gone."""
    size, streams, _, _ = socket.recv_fds(connection, NUMBER.size, 3)
    wanted = json.loads(received(connection, NUMBER.unpack(size)[0]))
    pid = os.fork()
    if pid == 0:
        connection.close()
        for fd, stream in enumerate(streams):
            os.dup2(stream, fd)
            os.close(stream)
        os.environ.clear()
        os.environ.update(wanted["environment"])
        for number in wanted["ignored"]:
            signal.signal(number, signal.SIG_IGN)
        ranks = [os.environ[name] for name in RANKS if name in os.environ]
        lightning = importlib.import_module("lightning_utilities.core.rank_zero")
        lightning.rank_zero_only.rank = int(ranks[0]) if ranks else 0  # which is read when it is imported
        sys.argv = [wanted["how"], *wanted["arguments"]]
        try:
            if wanted["how"] == "-c":  # a worker of xdist; what its tests start begins as anywhere
                sys.executable = wanted["python"]
                exec(wanted["what"], {"__name__": "__main__"})
            else:
                runpy.run_module(wanted["what"], run_name="__main__", alter_sys=True)
            exit_codes.append(0)
        except SystemExit as ended:
            if isinstance(ended.code, int | None):
                exit_codes.append(ended.code or 0)
            raise
        sys.exit(0)
    for stream in streams:
        os.close(stream)
    connection.sendall(NUMBER.pack(pid))
    end = os.pidfd_open(pid)
    if end not in select.select([connection, end], [], [])[0]:
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with suppress(OSError):
        connection.sendall(NUMBER.pack(code))
    os._exit(0)


def received(connection: socket.socket, size: int) -> bytes:
    """So many bytes, or fewer where the other side is gone."""
    content = b""
    while len(content) < size and (part := connection.recv(size - len(content))):
        content += part
    return content


def call(address: str, words: list[str]) -> None:
    """The stand-in: have the server run this command, hand signals on to it, and end as it does."""
    given = words[words[:1] == ["-u"] :]
    if len(given) < 2 or (given[0] != "-m" and words[:2] != ["-u", "-c"]) or Path.cwd() != ROOT:
        os.execv(sys.executable, [sys.executable, *words])
    wanted = {"how": given[0], "what": given[1], "arguments": given[2:], "environment": dict(os.environ)}
    wanted["python"] = sys.executable
    handed_on = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    # What a shell in the background makes its children ignore, a module may heed nevertheless.
    wanted["ignored"] = [number for number in handed_on if signal.getsignal(number) == signal.SIG_IGN]
    content = json.dumps(wanted).encode()
    signal.pthread_sigmask(signal.SIG_BLOCK, handed_on)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    socket.send_fds(connection, [NUMBER.pack(len(content))], [0, 1, 2])
    connection.sendall(content)
    (pid,) = NUMBER.unpack(received(connection, NUMBER.size))
    for number in handed_on:
        signal.signal(number, lambda number, _: os.kill(pid, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, handed_on)
    (code,) = NUMBER.unpack(received(connection, NUMBER.size))
    if code < 0:
        with suppress(OSError):  # SIGKILL is as it is
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def main(words: list[str]) -> None:
    if not __spec__:  # run as a file
        call(words[0], words[1:])
    elif len(words) == 2:
        serve(*words)
    else:
        module, name, rank, folder = words
        getattr(importlib.import_module(module), name)(int(rank), folder)


if __name__ == "__main__":
    main(sys.argv[1:])
