"""kill -9 what works on a sweep, at random moments: workers, trials, and the sweep, which is started anew."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import optuna
import psutil

from tests.chaos.training_kills import CONFIGS, ROOT, SIZES

METRIC = "val/qa/f1"
RATES = (1e-4, 3e-4, 1e-3, 3e-3)
SEEDS = (0, 1)
POINTS = len(RATES) * len(SEEDS)
PATIENCE_S = 600.0
RESTARTS = 1
"""How often the sweep itself is killed, with all its workers."""

SWEEP = f"""study: chaos
metric: {METRIC}
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
  model.learning_rate: [{", ".join(f"{rate:.1e}" for rate in RATES)}]
  seed_everything: [{", ".join(map(str, SEEDS))}]
"""


@dataclass
class SweepKills:
    """What was killed, and what became of the trials."""

    killed: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def told(self) -> str:
        """One line."""
        killed = ", ".join(f"{count} {what}" for what, count in sorted(self.killed.items()))
        states = ", ".join(f"{count} {state}" for state, count in sorted(self.states.items()))
        return f"killed {killed or 'nothing'}; {POINTS} trials: {states}"


def kill_sweep(kills: int, seed: int, root: Path) -> SweepKills:
    """Kill `kills` workers, and the sweep itself once; every trial must end once."""
    root.mkdir(parents=True, exist_ok=True)
    file, folder, log = root / "chaos.yaml", root / "study", root / "sweep.log"
    file.write_text(SWEEP)
    result, dice = SweepKills(), random.Random(seed)
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        process = _start(file, folder, log)
        try:
            restart = _kill_some(process, kills, dice, result, end)
        finally:
            if process.poll() is None and (time.monotonic() >= end or sys.exc_info()[0]):
                _end(process)
        if not restart:
            break
    else:
        result.problems.append(f"the sweep did not end in {PATIENCE_S:.0f} s")
    if process.poll() != 0:
        result.problems.append(f"the sweep ended with {process.returncode}: {log.read_text()[-1500:]}")
    result.problems += check_study(folder, result)
    return result


def _start(file: Path, folder: Path, log: Path) -> subprocess.Popen[bytes]:
    with open(log, "ab") as out:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "training", "sweep", str(file), "--workers=2"),
                *(f"--output={folder}", "--heartbeat=2"),
            ],
            cwd=ROOT,
            stdout=out,
            stderr=out,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )


def _kill_some(
    process: subprocess.Popen[bytes], kills: int, dice: random.Random, result: SweepKills, end: float
) -> bool:
    """Kill until enough is killed or the sweep has ended; True where it has to be started again."""
    while process.poll() is None and time.monotonic() < end:
        pause = time.monotonic() + dice.uniform(1.0, 12.0)
        while time.monotonic() < pause and process.poll() is None:
            time.sleep(0.1)
        if result.killed["workers"] + result.killed["trials"] < kills:
            what, victims = dice.choice([("workers", _workers(process)), ("trials", _trials(process))])
            if victims:
                victim = dice.choice(victims)
                _kill(victim)
                result.killed[what] += 1
        elif result.killed["sweeps"] < RESTARTS and process.poll() is None:
            _end(process)
            result.killed["sweeps"] += 1
            return True
    return False


def _workers(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The processes that take trials: children of the sweep that have children of their own."""
    return [child for child in _children(process.pid) if _children(child.pid)]


def _trials(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The processes of running trials: `training fit`, below the workers."""
    return [found for found in _children(process.pid, below=True) if _is_fit(found)]


def _is_fit(process: psutil.Process) -> bool:
    try:
        words = process.cmdline()
    except psutil.Error:
        return False
    return words[1:4] == ["-m", "training", "fit"] and "--print_config" not in words


def _children(pid: int, *, below: bool = False) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=below)
    except psutil.Error:
        return []


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.Error:
        return


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the sweep and all below it, at once."""
    family = [*_children(process.pid, below=True)]
    os.kill(process.pid, signal.SIGKILL)
    for one in family:
        _kill(one)
    process.wait()


def check_study(folder: Path, result: SweepKills) -> list[str]:
    """What is wrong with a study that has ended; empty if every point has one result, or one reason."""
    if not (folder / "study.db").exists():
        return ["no study was begun"]
    storage = f"sqlite:///{folder / 'study.db'}"
    trials = optuna.load_study(study_name="chaos", storage=storage).get_trials(deepcopy=False)
    problems = []
    done: Counter[str] = Counter()
    failed: dict[str, str] = {}
    for trial in trials:
        point = json.dumps(trial.params, sort_keys=True)
        if trial.state == optuna.trial.TrialState.COMPLETE:
            done[point] += 1
        elif not trial.state.is_finished():
            problems.append(f"trial {trial.number} is left {trial.state.name.lower()}")
        elif trial.user_attrs.get("error"):
            failed[point] = trial.user_attrs["error"]
    problems += [f"{point} has {count} results" for point, count in done.items() if count > 1]
    missing = POINTS - len(done.keys() | failed.keys())
    if missing:
        problems.append(f"{missing} of {POINTS} points have neither a result nor a reason")
    result.states.update(complete=len(done), failed=len(failed.keys() - done.keys()))
    return problems
