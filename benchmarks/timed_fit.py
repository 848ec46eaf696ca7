"""`python -m training fit` with a stopwatch.   python -m benchmarks.timed_fit FILE fit ...

Writes FILE.RANK (JSON) in every process: seconds from the start of the process until its imports were done,
and from then until the first step was done; windows, steps and seconds of every epoch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def import_all() -> None:
    """What a run imports sooner or later, so that it is counted apart from what the run does."""
    import datasets  # noqa: F401
    from transformers import (  # noqa: F401  transformers imports modules when their names are asked for
        AutoModelForQuestionAnswering,
        AutoTokenizer,
        BertForQuestionAnswering,
        get_linear_schedule_with_warmup,
    )

    import models.cpu_kernels  # noqa: F401
    import training.cli  # noqa: F401


def main() -> int:
    """Run `fit` and write what the clock says."""
    import psutil

    import_all()
    imported = time.time()
    from benchmarks.clock import EpochClock
    from training.cli import main as cli

    output, *arguments = sys.argv[1:]
    run = cli([*arguments, "--trainer.callbacks+=benchmarks.clock.EpochClock"])
    watch = next(c for c in run.trainer.callbacks if isinstance(c, EpochClock)).watch
    began = psutil.Process().create_time()
    record = {
        "import_seconds": imported - began,
        "first_step_seconds": watch.first_step - imported,
        "seconds": watch.seconds,
        "windows": watch.windows,
        "steps": watch.steps,
    }
    Path(f"{output}.{run.trainer.global_rank}").write_text(json.dumps(record), encoding="utf-8")
    return 0


def timed_fit(arguments: Sequence[str], folder: Path, *, threads: int = 0) -> list[Mapping[str, Any]]:
    """Run `fit` in a process of its own and return its records, one for each rank.

    Args:
        arguments: of `python -m training`.
        folder: an existing folder for the records.
        threads: of each process; 0 leaves them to torch.

    Raises:
        ValueError: the run failed; with the end of what it said.
    """
    output = folder / "record"
    for old in folder.glob("record.*"):
        old.unlink()
    environment = {**os.environ, **({"OMP_NUM_THREADS": str(threads)} if threads else {})}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.timed_fit", str(output), *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    records = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("record.*"))]
    if done.returncode or not records:
        raise ValueError(f"training fit failed: {done.stderr.strip()[-1500:]}")
    return records


if __name__ == "__main__":
    sys.exit(main())
