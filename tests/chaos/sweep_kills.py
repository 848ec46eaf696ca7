"""kill -9 what works on a sweep, at random moments: workers, trials, and the command, which is started again.

On three engines: two workers of this machine, a SLURM array of three tasks in two processes, a local Ray.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import time
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from tests.chaos.training_kills import CONFIGS, SIZES, start_command
from tests.malformed.outcome import CODES
from training.sweep.file import read_sweep
from training.sweep.point import Study

LIMIT_S = 1200
TIMEOUT_S = 900.0
SWEEP = f"""study: chaos
metric: val/qa/f1
direction: maximize
sampler: grid
retries: 20
configs: [{CONFIGS}/experiments/squad.yaml, {CONFIGS}/backbones/tiny_roberta.yaml]
flags:
  - --run.wandb=off
  - --run.save_every_n_steps=3
  - --trainer.accelerator=cpu
  - --trainer.precision=32-true
  - --trainer.enable_progress_bar=false
  - --trainer.max_steps=40
  - --data.train_qa=stories:train
  - --data.limit_train_qa=200
  - --data.val_qa.main=stories:dev
  - --data.limit_val_qa=40
  - --data.qa_batch_size=8
  - "--backbone.config={SIZES}"
space:
"""


@dataclass(frozen=True)
class Engine:
    """How a sweep is run.

    Args:
        name: of the engine.
        space: what is swept.
        commands: the flags of each command that belongs to it.
        slots: how many commands run at the same time.
    """

    name: str
    space: str
    commands: tuple[str, ...]
    slots: int = 1


ENGINES = (
    Engine(
        "workers",
        "  model.learning_rate: [1.0e-4, 3.0e-4, 1.0e-3, 3.0e-3]\n  seed_everything: [0, 1]\n",
        ("--workers=2",),
    ),
    Engine(
        "array",
        "  model.learning_rate: [1.0e-4, 3.0e-4, 1.0e-3]\n",
        ("--point=0", "--point=1", "--point=2"),
        slots=2,
    ),
    Engine("ray", "  model.learning_rate: [1.0e-4, 3.0e-4, 1.0e-3]\n", ("--ray=local",)),
)


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_kills_of_a_sweep(engine: Engine, options: argparse.Namespace, tmp_path: Path) -> None:
    """kill -9 of workers, a trial and the command of a sweep ({engine.name})

    Promise: every point ends once; only the trial that was killed fails.
    """
    if engine.name == "ray" and not find_spec("ray"):
        pytest.skip("Ray is not installed")
    kills, root = options.sweep_kills, tmp_path
    file, folder, log = root / "chaos.yaml", root / "study", root / "sweep.log"
    file.write_text(SWEEP + engine.space)
    made, problems = Counter[str](), list[str]()
    dice, end = random.Random(options.seed), time.monotonic() + TIMEOUT_S
    waiting, running = deque(engine.commands), dict[str, subprocess.Popen[bytes]]()
    try:
        while (waiting or running) and time.monotonic() < end:
            while waiting and len(running) < engine.slots:
                flag = waiting.popleft()
                running[flag] = _start(file, flag, folder, log)
            pause = time.monotonic() + dice.uniform(1.0, 12.0)
            while time.monotonic() < pause and all(process.poll() is None for process in running.values()):
                time.sleep(0.1)
            for flag, process in list(running.items()):
                if process.poll() is None:
                    continue
                del running[flag]
                CODES.append(process.returncode)
                if process.returncode < 0:  # our kill: the batch system starts it again
                    waiting.append(flag)
                elif process.returncode and not (engine.name == "array" and process.returncode == 1):
                    problems.append(f"{flag} ended with {process.returncode}: {log.read_text()[-1500:]}")
            if running:
                _kill_something(list(running.values()), kills, dice, made)
    finally:
        for process in running.values():
            _end(process)
    if waiting or running:
        problems.append(f"the sweep did not end in {TIMEOUT_S:.0f} s")
    points = Study(sweep=read_sweep(file), folder=folder).points()
    problems += [f"{point.name} has not ended" for point in points if not point.ended]
    failures = [f"{p.name}: {p.reason}" for p in points if p.state == "failed" and "signal 9" not in p.reason]
    problems += failures
    assert not problems, f"killed {made}: {problems}"


def _start(file: Path, flag: str, folder: Path, log: Path) -> subprocess.Popen[bytes]:
    array = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_ARRAY_TASK_ID": flag[-1]}
    return start_command(
        ["sweep", str(file), flag, f"--output={folder}"],
        log,
        **(array if flag.startswith("--point") else {}),
    )


def _kill_something(
    commands: list[subprocess.Popen[bytes]], kills: int, dice: random.Random, made: Counter[str]
) -> None:
    """One worker or trial, until there were enough; then one command with all that it has started."""
    if made.total() < kills:
        below = [process for command in commands for process in _below(command.pid)]
        kinds = {"workers": "guard.py", "Ray workers": "ray::run_point"}
        if not made["trials"]:  # which fails its point, as when memory ran out
            kinds["trials"] = "-m training fit"
        victims = [(what, one) for what, words in kinds.items() for one in below if _is(one, words)]
        with suppress(psutil.Error, IndexError):
            what, victim = dice.choice(victims)
            victim.kill()
            made[what] += 1
    elif not made["commands"]:
        _end(dice.choice(commands))
        made["commands"] += 1


def _below(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []


def _is(process: psutil.Process, words: str) -> bool:
    """Whether its command line holds `words`; guards hold those of the trial too, and are no trials."""
    try:
        line = " ".join(process.cmdline())
    except psutil.Error:
        return False
    return words in line and ("guard.py" in line) == (words == "guard.py") and "--print_config" not in line


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a command and all below it, at once."""
    family = _below(process.pid)
    process.kill()
    for one in family:
        with suppress(psutil.Error):
            one.kill()
    process.wait()
