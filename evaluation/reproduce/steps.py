"""Runs the commands of a reproduction: each in a process of its own, none again that is finished."""

from __future__ import annotations

import hashlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from evaluation.reproduce.recipe import Recipe
from storage.files import file_digest, tidy_end
from storage.finished_work import FinishedWork, work_key

WATCH = "import os, signal, sys; sys.stdin.read(); os.killpg(int(sys.argv[1]), signal.SIGTERM)"
"""Ends a step when the pipe closes that `reproduce` holds: when it is killed."""


def run_step(command: Sequence[str], log: Path) -> int:
    """Run a command in a process of its own; a signal to this process ends that one in its orderly way, and
    so does the end of this process, even by SIGKILL."""
    with open(log, "ab") as file, tidy_end():
        process = subprocess.Popen(
            [sys.executable, "-m", *command], stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
        watch = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", WATCH, str(process.pid)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            return process.wait()
        except (KeyboardInterrupt, SystemExit) as stop:
            process.send_signal(signal.SIGINT if isinstance(stop, KeyboardInterrupt) else signal.SIGTERM)
            process.wait()
            raise
        finally:
            watch.kill()
            watch.communicate()


def run_steps(
    recipe: Recipe, commands: Sequence[Sequence[str]], values: Mapping[str, str], home: Path
) -> None:
    """Run what has not been finished before with the same files and the same commands up to there, and what
    has, but whose printed results are gone.

    Raises:
        ValueError: a command failed; with the end of what it said.
    """
    finished, skipped = FinishedWork(home / "steps.jsonl"), False
    results = [printed.results for printed in recipe.printed]
    key = work_key(data=input_digests(values, home.absolute()))
    for at, command in enumerate(commands, 1):
        key, log = work_key(before=key, command=list(command)), home / f"step{at}.log"
        title = f"step {at} of {len(commands)}: {shlex.join(command[:2])}"
        record = finished.get(key)
        if record and all((home / name).exists() for name in record.get("results", [])):
            print(f"{title}: finished before", flush=True)
            skipped = True
            continue
        print(f"{title} ... ({log})", flush=True)
        begun, before = time.monotonic(), {name: version_of(home / name) for name in results}
        if code := run_step(command, log):
            message = log.read_text(errors="replace").strip().rpartition("\n")[2] if log.exists() else ""
            again = f" (to run the finished steps again, too, remove {finished.path})" * skipped
            raise ValueError(
                f"step {at} failed (exit code {code}): {message.removeprefix('error: ')} ({log}); "
                f"python -m {shlex.join(command)}{again}"
            )
        written = [name for name in before if version_of(home / name) not in (None, before[name])]
        seconds = round(time.monotonic() - begun, 1)
        finished.add(key, command=list(command), seconds=seconds, results=written)


def version_of(path: Path) -> tuple[int, int] | None:
    """When a file was written, and which file it is; None where there is none."""
    return (path.stat().st_mtime_ns, path.stat().st_ino) if path.exists() else None


def input_digests(values: Mapping[str, str], home: Path) -> dict[str, str]:
    """Digests of the files and folders that placeholders name. What lies below home was written by a step."""
    found = dict[str, str]()
    for name, value in values.items():
        parts = [Path(part) for part in value.removeprefix("hf:").split("+")]
        # A value need not be a path, and may be too long for one: os.path.exists takes that for no.
        parts = [part for part in parts if not part.absolute().is_relative_to(home) and os.path.exists(part)]
        if value and parts:
            found[name] = "+".join(path_digest(part, home) for part in parts)
    return found


def path_digest(path: Path, without: Path) -> str:
    """Of a file its content; of a folder the names, sizes and times of the files in it, but for hidden ones
    and those below `without`."""
    if path.is_file():
        return file_digest(path)
    files = [
        (str(file.relative_to(path)), file.stat().st_size, file.stat().st_mtime_ns)
        for file in sorted(path.rglob("[!.]*"))
        if file.is_file() and not file.absolute().is_relative_to(without)
    ]
    return hashlib.sha256(repr(files).encode()).hexdigest()
