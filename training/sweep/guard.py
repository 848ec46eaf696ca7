"""Runs the command of one point: one at a time, never again once it has ended, and never longer than its
caller.

    python guard.py FOLDER GRACE wait|skip COMMAND...

A lock in FOLDER admits one guard; others wait for it, or `skip` the point. What the command prints goes to
FOLDER/log.txt; a command that ended by itself leaves FOLDER/exit_code, and is not run again. Guard and
command share a process group. Standard input is a pipe that the caller holds: when it closes, because the
caller stops the point or was killed, the group gets SIGTERM, and SIGKILL after GRACE seconds.
(PR_SET_PDEATHSIG would reach the direct child alone, not the processes of a multi-GPU run, and exists on
Linux only.)
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock, Timeout

LOG, EXIT_CODE, LOCK, OWNER = "log.txt", "exit_code", ".lock", ".owner"
ENDED, BUSY, STOPPED = 0, 75, 130
"""Exit codes of the guard: the command has ended (now or before), another guard runs it, it was stopped."""
POLL_S = 0.1

asked_to_stop = False


def main(folder: Path, grace: float, wait: bool, command: Sequence[str]) -> int:
    """Run the command unless it has ended; see the module."""
    signal.signal(signal.SIGTERM, _stop)  # a batch system sends it to every process
    lock = FileLock(folder / LOCK)
    while not _stopping():
        try:
            lock.acquire(timeout=POLL_S)
        except Timeout:
            if wait:
                continue
            return BUSY
        return ENDED if (folder / EXIT_CODE).exists() else _run(folder, grace, command)
    return STOPPED


def write_exit_code(folder: Path, code: int | str) -> None:
    """Mark a point as ended."""
    temporary = folder / f".{EXIT_CODE}.tmp"
    temporary.write_text(str(code))
    temporary.replace(folder / EXIT_CODE)


def _run(folder: Path, grace: float, command: Sequence[str]) -> int:
    (folder / OWNER).write_text(str(os.getpid()))
    with open(folder / LOG, "ab") as log:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    while (code := child.poll()) is None:
        if _stopping(POLL_S):
            _end_group(child, grace)
            return STOPPED
    if asked_to_stop:
        return STOPPED
    write_exit_code(folder, code if code >= 0 else 128 - code)  # 128 + N for signal N, as in a shell
    return ENDED


def _stopping(seconds: float = 0.0) -> bool:
    """Whether the pipe closed (nothing is ever written to it) or SIGTERM came; waits `seconds` at most."""
    return bool(select.select([0], [], [], seconds)[0]) or asked_to_stop


def _end_group(child: subprocess.Popen[bytes], grace: float) -> None:
    """SIGTERM to all, and in the end SIGKILL, which takes the guard along."""
    os.killpg(0, signal.SIGTERM)
    end = time.monotonic() + grace
    while child.poll() is None and time.monotonic() < end:
        time.sleep(POLL_S)
    os.killpg(0, signal.SIGKILL)


def _stop(*_: object) -> None:
    global asked_to_stop
    asked_to_stop = True


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3] == "wait", sys.argv[4:]))
