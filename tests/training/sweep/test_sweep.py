"""A sweep finishes whatever dies under it: workers, trials, the whole command; on SQLite and on
PostgreSQL."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import psutil
import pytest
from optuna.trial import FrozenTrial, TrialState

from tests.training.sweep.fake_sweep import run
from training.sweep import command as sweep_module
from training.sweep.command import share_out
from training.sweep.queue import POINT, WORKER, current_trials, open_storage

ROOT = Path(__file__).resolve().parents[3]
POSTGRES = Path("/usr/lib/postgresql/15/bin")


def trials_of(folder: Path, storage: str = "") -> list[FrozenTrial]:
    kept = open_storage(storage or f"sqlite:///{folder / 'study.db'}", 30)
    return optuna.load_study(study_name="fake", storage=kept).get_trials()


def starts(folder: Path, point: int) -> list[dict[str, Any]]:
    """What the fake `fit` noted at each of its starts."""
    text = (folder / "trials" / f"trial_{point:04d}" / "0" / "starts.txt").read_text()
    return [json.loads(line) for line in text.splitlines()]


def begin(folder: Path, storage: str, workers: int, **changes: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.training.sweep.fake_sweep", str(folder), storage, str(workers)]
    return subprocess.Popen([*command, json.dumps(changes)], cwd=ROOT, stdout=subprocess.PIPE, text=True)


def wait_for(condition: Any, seconds: float = 60) -> Any:
    """The first true value of `condition()`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen in time")


@pytest.fixture(params=["embedded", "postgresql"])
def storage(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of an empty storage: the default, or a server started for the test."""
    if request.param == "embedded":
        yield ""
        return
    if not (POSTGRES / "initdb").exists():
        pytest.skip(f"needs PostgreSQL in {POSTGRES}")
    user = "postgres" if os.geteuid() == 0 else None  # the server refuses to run as root
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home = Path(f"/tmp/interventune-postgres-{os.getpid()}-{port}")  # a path that another user can reach
    home.mkdir()
    if user:
        shutil.chown(home, user)
    settings = f"-F -p {port} -k {home} -c listen_addresses="
    options: dict[str, Any] = {"user": user, "cwd": home, "check": True, "stdout": subprocess.DEVNULL}
    ctl = [str(POSTGRES / "pg_ctl"), "-D", str(home / "data"), "-l", str(home / "log"), "-w"]
    try:
        initdb = [str(POSTGRES / "initdb"), "-D", str(home / "data"), "-U", "sweeper", "-A", "trust", "-N"]
        subprocess.run(initdb, **options)
        subprocess.run([*ctl, "-o", settings, "start"], **options)
        yield f"postgresql+psycopg://sweeper@/postgres?host={home}&port={port}"
    finally:
        subprocess.run([*ctl, "-m", "immediate", "stop"], **{**options, "check": False})
        shutil.rmtree(home)


def test_sixteen_trials_are_complete_although_a_worker_is_killed(tmp_path: Path, storage: str) -> None:
    command = begin(tmp_path, storage, 2)

    def running() -> list[FrozenTrial]:
        try:
            trials = trials_of(tmp_path, storage)
        except KeyError:
            return []
        if sum(trial.state == TrialState.COMPLETE for trial in trials) < 3:
            return []
        return [t for t in trials if t.state == TrialState.RUNNING and WORKER in t.user_attrs and started(t)]

    def started(trial: FrozenTrial) -> bool:
        return (tmp_path / "trials" / f"trial_{trial.user_attrs[POINT]:04d}" / "0" / "starts.txt").exists()

    victim = wait_for(running)[0]
    host, _, pid = victim.user_attrs[WORKER].rpartition(":")
    assert host == socket.gethostname()
    os.kill(int(pid), signal.SIGKILL)
    assert command.wait(120) == 0

    trials = current_trials(trials_of(tmp_path, storage))
    assert [trial.user_attrs[POINT] for trial in trials] == list(range(16))
    assert {trial.state for trial in trials} == {TrialState.COMPLETE}
    grid = [(x, y) for x in (0.0, 1.0, 2.0, 3.0) for y in (0.0, 0.25, 0.5, 0.75)]
    assert [(trial.params["x"], trial.params["y"]) for trial in trials] == grid
    assert [trial.value for trial in trials] == [x + y for x, y in grid]
    point = victim.user_attrs[POINT]
    again = starts(tmp_path, point)
    assert len({json.dumps(start["flags"]) for start in again}) == 1
    assert trials[point].user_attrs["deaths"] == 1
    assert all(len(starts(tmp_path, other)) == 1 for other in range(16) if other != point)
    assert not any(psutil.pid_exists(start["pid"]) for start in again)
    rows = list(csv.DictReader((tmp_path / "study.csv").open()))
    assert [(int(row["number"]), row["state"]) for row in rows] == [(i, "COMPLETE") for i in range(16)]
    assert (tmp_path / "optimization_history.png").stat().st_size > 0
    assert (tmp_path / "param_importances.png").stat().st_size > 0
    assert "was killed (signal 9)" in (command.stdout.read() if command.stdout else "")


def test_a_study_that_was_interrupted_goes_on_with_the_same_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space = {"x": [0.0, 1.0, 2.0]}
    command = begin(tmp_path, "", 1, pause=1, space=space)
    wait_for((tmp_path / "trials" / "trial_0001" / "0" / "starts.txt").exists)
    command.send_signal(signal.SIGINT)
    assert command.wait(60) == 130
    assert "1 of 3 trials have ended" in (command.stdout.read() if command.stdout else "")
    assert (tmp_path / "trials" / "trial_0001" / "0" / "asked_to_stop").exists()
    assert not any(psutil.pid_exists(start["pid"]) for start in starts(tmp_path, 1))
    assert [t.state for t in current_trials(trials_of(tmp_path))][1:] == [TrialState.WAITING] * 2

    assert run(tmp_path, pause=1, space=space) == 0
    assert [t.value for t in current_trials(trials_of(tmp_path))] == [0, 1, 2]
    assert [t.user_attrs["deaths"] for t in current_trials(trials_of(tmp_path))] == [0, 0, 0]
    assert [len(starts(tmp_path, point)) for point in range(3)] == [1, 2, 1]

    capsys.readouterr()
    assert run(tmp_path, pause=1, space=space) == 0
    assert [len(starts(tmp_path, point)) for point in range(3)] == [1, 2, 1]
    assert "3 complete" in capsys.readouterr().out


def test_trials_that_fail_are_recorded_once_and_the_others_go_on(tmp_path: Path) -> None:
    assert run(tmp_path, space={"x": [-1.0, 7.0, 8.0, 9.0, 1.0]}, pause=0) == 0
    trials = trials_of(tmp_path)
    assert [trial.state.name for trial in trials] == ["FAIL"] * 4 + ["COMPLETE"]
    errors = [trial.user_attrs["error"] for trial in trials[:4]]
    assert errors[0] == "exit code 3"
    assert trials[0].user_attrs["log"] == "a long story\nValueError: x must not be negative\n"
    assert errors[1].endswith("val/score is nan")
    assert errors[2].endswith("has no val/score; it has other")
    assert errors[3] == "exit code 137 (signal 9, out of memory?)"
    assert all(len(starts(tmp_path, point)) == 1 for point in range(5))

    assert run(tmp_path / "nothing", space={"x": [-1.0]}, pause=0) == 1


def test_a_trial_worse_than_the_others_is_given_up(tmp_path: Path) -> None:
    options = {"n_startup_trials": 2, "n_warmup_steps": 0}
    space = {"x": [2.0, 2.5, 0.0, 3.0]}
    assert run(tmp_path, space=space, pruner="median", pruner_options=options, pause=1) == 0
    trials = trials_of(tmp_path)
    assert [trial.state.name for trial in trials] == ["COMPLETE", "COMPLETE", "PRUNED", "COMPLETE"]
    assert trials[0].intermediate_values == dict.fromkeys(range(1, 6), 2.0)
    assert len(trials[2].intermediate_values) < 5
    assert (tmp_path / "trials" / "trial_0002" / "0" / "asked_to_stop").exists()


def test_nothing_starts_when_fit_does_not_know_a_key(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'misspelt' is not accepted"):
        run(tmp_path / "study", space={"misspelt": [1]})
    assert not (tmp_path / "study").exists()


def test_a_folder_or_study_of_something_else_is_left_alone(tmp_path: Path) -> None:
    assert run(tmp_path, space={"x": [1.0]}, pause=0) == 0
    with pytest.raises(ValueError, match="was begun with other arguments"):
        run(tmp_path, space={"x": [2.0]}, pause=0)
    (tmp_path / "study.db").unlink()
    with pytest.raises(ValueError, match="holds trials of another study"):
        run(tmp_path, space={"x": [2.0]}, pause=0)


def test_a_storage_that_cannot_be_reached_is_named_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--storage postgresql") as caught:
        run(tmp_path, storage="postgresql+psycopg://me:hush@127.0.0.1:1/nothing")
    assert "hush" not in str(caught.value)


def test_every_worker_gets_gpus_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_module, "visible_gpus", lambda: ["4", "5", "6", "7", "GPU-ab"])
    shares = share_out(2, 2)
    assert [share.environment()["CUDA_VISIBLE_DEVICES"] for share in shares] == ["4,5", "6,7"]
    assert shares[0].flags() == ["--trainer.devices=2"]
    with pytest.raises(ValueError, match="needs 6 GPUs, 5 are visible"):
        share_out(3, 2)
