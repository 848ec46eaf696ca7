"""All measurements that need a GPU, one after the other: `make bench-gpu`.

Each step is a command with its own limit, so that a failure loses one figure. Figures are lines of JSON in
OUTPUT/figures.jsonl; what the commands print is in OUTPUT/STEP.log.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

from storage.command_line import run


def steps(tiny: bool, figures: Path, folder: Path) -> dict[str, tuple[int, list[str]]]:
    """Return the limit in seconds and the arguments of `python -m` of every step."""
    size, shape = ("tiny", "tiny-roberta") if tiny else ("gpu", "roberta-large")
    how = [f"--json={figures}", f"--size={size}"]
    small = ["--tiny"] if tiny else []
    return {
        "tests": (180, ["pytest", "-m", "gpu", "tests/training/test_gpu.py", "tests/interventune"]),
        "training": (400, ["benchmarks", "training", f"--shape={shape}", *how]),
        "decoder": (120, ["benchmarks", "decoder", "--repeats=2", *how]),
        "callbacks": (180, ["benchmarks", "callbacks", "--repeats=2", *how]),
        "likelihoods": (120, ["benchmarks", "likelihoods", "--model=random", "--repeats=2", *how]),
        "demo_ibt": (240, ["evaluation", "reproduce", "demo_ibt", f"--work={folder / 'ibt'}", *small]),
        "demo_lei": (240, ["evaluation", "reproduce", "demo_lei", f"--work={folder / 'lei'}", *small]),
    }


def measure(
    names: list[str] | None = None,
    *,
    output: Annotated[Path, "FOLDER"] = Path("reports/gpu"),
    tiny: bool = False,
) -> None:
    """Run the steps; print how each ended and the end of what it printed.

    Args:
        names: steps to run; all by default.
        output: folder for figures and logs.
        tiny: small shapes, to try the steps on a CPU.
    """
    output.mkdir(parents=True, exist_ok=True)
    every = steps(tiny, output / "figures.jsonl", output)
    for name in names or every:
        limit, arguments = every[name]
        began, log = time.perf_counter(), output / f"{name}.log"
        with log.open("w", encoding="utf-8") as file:
            command = [sys.executable, "-m", *arguments]
            process = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)
            try:
                ended = f"exit code {process.wait(limit)}"
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # with the processes that it started
                ended = f"stopped after {limit} seconds"
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-12:]
        print(f"== {name}: {ended}, {time.perf_counter() - began:.0f} s", *lines, sep="\n", flush=True)


if __name__ == "__main__":
    sys.exit(run(measure, "python -m benchmarks.gpu"))
