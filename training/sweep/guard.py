"""Runs the command of one trial so that it never outlives whoever asked for it, and never runs twice at a
time.

    python sweep_guard.py FOLDER GRACE COMMAND...

The guard and its command share a process group of their own. Standard input is a pipe that the worker holds:
when it closes, because the worker wants the trial to stop or because it was killed, the whole group gets
SIGTERM, and SIGKILL after GRACE seconds. (Linux could signal the orphan itself, PR_SET_PDEATHSIG, but only
the direct child, not the processes of a multi-GPU run, and other systems could not.) A lock in FOLDER makes
the next guard of the same trial wait until this one is gone. What the command prints goes to FOLDER/log.txt;
a command that ended by itself leaves FOLDER/exit_code, and is not run again.
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

LOG, EXIT_CODE, LOCK = "log.txt", "exit_code", ".lock"
STOPPED = 130
TURN = 0.1
"""Seconds between two looks at the command and at the pipe."""

asked_to_stop = False


def main(folder: Path, grace: float, command: Sequence[str]) -> int:
    """The command's exit code (128 + N for signal N), now or when it was run before; 130 where it was
    stopped."""
    signal.signal(signal.SIGTERM, _stop)  # a batch system tells everybody at once
    lock = FileLock(folder / LOCK)
    while not _stopping():
        try:
            lock.acquire(timeout=TURN)
        except Timeout:
            continue
        ended = folder / EXIT_CODE
        return int(ended.read_text()) if ended.exists() else _run(folder, grace, command)
    return STOPPED


def _run(folder: Path, grace: float, command: Sequence[str]) -> int:
    with open(folder / LOG, "ab") as log:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    while (code := child.poll()) is None:
        if _stopping(TURN):
            _end_group(child, grace)
            return STOPPED
    if asked_to_stop:
        return STOPPED
    code = code if code >= 0 else 128 - code
    temporary = folder / f".{EXIT_CODE}.tmp"
    temporary.write_text(str(code))
    temporary.replace(folder / EXIT_CODE)
    return code


def _stopping(seconds: float = 0.0) -> bool:
    """Whether the pipe closed (nothing is ever written to it) or somebody sent SIGTERM; waits so long at
    most."""
    return bool(select.select([0], [], [], seconds)[0]) or asked_to_stop


def _end_group(child: subprocess.Popen[bytes], grace: float) -> None:
    """SIGTERM to all, and in the end SIGKILL, which takes the guard along."""
    os.killpg(0, signal.SIGTERM)
    end = time.monotonic() + grace
    while child.poll() is None and time.monotonic() < end:
        time.sleep(TURN)
    os.killpg(0, signal.SIGKILL)


def _stop(*_: object) -> None:
    global asked_to_stop
    asked_to_stop = True


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
