"""A sweep finishes whatever dies under it, and runs no point twice. Every shipped one is valid."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import optuna
import pandas as pd
import psutil
import pytest
import yaml

from interventune.training.sweep import run
from interventune.training.sweep.run import main, shares, sweep_of
from tests.training.conftest import launch, resolved

ROOT = Path(__file__).resolve().parents[3]
FAKE = (sys.executable, "-S", str(Path(__file__).with_name("fake_fit.py")))
SMALL = {"study": "fake", "metric": "val/score", "direction": "maximize", "configs": []}


def written(folder: Path, content: dict[str, Any]) -> str:
    path = folder / "sweep.yaml"
    path.write_text(yaml.safe_dump(content))
    return str(path)


def wait_for(condition: Callable[[], Any], seconds: float = 240) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def table(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "study.csv").set_index("point")


@pytest.fixture
def postgres() -> Iterator[list[str]]:
    """The address of a PostgreSQL server that is started for the test."""
    places = [*map(str, Path("/usr/lib/postgresql").glob("*/bin")), os.environ["PATH"]]
    if (found := shutil.which("pg_ctl", path=os.pathsep.join(places))) is None:
        pytest.skip("needs PostgreSQL's pg_ctl on PATH or in /usr/lib/postgresql")
    pytest.importorskip("psycopg")
    with tempfile.TemporaryDirectory(prefix="postgres") as home:
        user = None if os.geteuid() else "nobody"  # as root the server refuses to run
        shutil.chown(home, user or os.geteuid())
        options: dict[str, Any] = {
            "user": user,
            "cwd": home,
            "check": True,
            "stdout": subprocess.DEVNULL,
        }
        ctl = [found, "-D", f"{home}/data", "-l", f"{home}/log", "-w"]
        subprocess.run([*ctl, "-o", "-U sweeper -A trust -N", "init"], **options)
        subprocess.run([*ctl, "-o", f"-F -k {home} -c listen_addresses=", "start"], **options)
        try:
            yield [f"--storage=postgresql+psycopg://sweeper@/postgres?host={home}"]
        finally:
            subprocess.run([*ctl, "-m", "immediate", "stop"], **options)


def begin(study: Path, content: dict[str, Any], *flags: str) -> subprocess.Popen[str]:
    """A worker in a process of its own, whose `fit` is fake_fit.py."""
    code = "import sys; from interventune.training.sweep import run; run.FIT = {}; "
    code += "sys.exit(run.main(sys.argv[1:]))"
    arguments = [written(study.parent, content), f"--output={study}", "--dead-after=4", *flags]
    return subprocess.Popen(
        [sys.executable, "-c", code.format(FAKE), *arguments], cwd=ROOT, text=True
    )


def starts(study: Path) -> dict[str, int]:
    """How often `fit` was started, by the value of x."""
    found = study.glob("points/*/run/starts.txt")
    return {path.parents[1].name: len(path.read_text().splitlines()) for path in found}


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_workers_share_a_study_whatever_ends_them(
    database: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The `fit` of one that is killed ends by itself; that of one that gets a signal to stop, or is
    killed with its `fit`, goes on elsewhere. No other point is run twice."""
    storage = request.getfixturevalue("postgres") if database == "postgresql" else []
    study, go_on = tmp_path / "study", tmp_path / "go_on"
    content = SMALL | {"space": {"x": [1.0, 2.0, 3.0, 4.0]}, "flags": [f"--until={go_on}"]}
    workers = []
    for number in (1, 2, 3):
        workers.append(begin(study, content, *storage))
        wait_for(lambda number=number: len(starts(study)) == number)
    (fit_of_third,) = psutil.Process(workers[2].pid).children()
    for worker, end in zip(workers, (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL), strict=True):
        worker.send_signal(end)
    assert [worker.wait(240) for worker in workers] == [-9, 130, -9]
    fit_of_third.kill()
    go_on.touch()
    workers = [begin(study, content, *storage) for _ in range(2)]
    assert [worker.wait(400) for worker in workers] == [0, 0]
    assert starts(study) == {"x=1.0": 1, "x=2.0": 2, "x=3.0": 2, "x=4.0": 1}
    assert list(table(study)["val/score"]) == [1, 2, 3, 4]


@pytest.fixture
def sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """The command in this process, with fake_fit.py: what it says, if it ends with `code`."""
    monkeypatch.setattr(run, "FIT", FAKE)
    monkeypatch.setattr(signal, "signal", lambda *_: None)

    def command(content: dict[str, Any], *flags: str, code: int = 0) -> str:
        assert (
            main([written(tmp_path, SMALL | content), f"--output={tmp_path / 'study'}", *flags])
            == code
        )
        return "".join(capfd.readouterr())

    return command


def test_failed_points_are_kept_with_a_reason(
    tmp_path: Path, sweep: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_NTASKS", "2")
    content = {"space": {"x": [-1.0, 7.0, 8.0, 9.0, 1.0]}, "keep": "best", "flags": ["--twice={x}"]}
    assert "4 fail, 1 complete" in sweep(content)
    found = table(tmp_path / "study")
    assert list(found["state"]) == ["fail"] * 4 + ["complete"]
    reasons = {"-1.0": "exit code 1: error: x must not be", "7.0": "is nan", "8.0": "are other"}
    assert all(reason in found["reason"][f"x={x}"] for x, reason in reasons.items())
    run = tmp_path / "study/points/x=1.0/run"
    assert not (run / "checkpoints" / "last.ckpt").exists()
    start = json.loads((run / "starts.txt").read_text())
    assert (start["job"], start["flags"]["twice"], start["flags"]["ckpt_path"]) == (
        None,
        "1.0",
        "auto",
    )
    for flags, times in (((), 1), (("--again",), 2)):
        sweep(content, *flags)
        assert (starts(tmp_path / "study")["x=-1.0"], starts(tmp_path / "study")["x=1.0"]) == (
            times,
            1,
        )


def test_points_are_compared_by_the_weights_that_are_kept(
    tmp_path: Path, sweep: Callable[..., str]
) -> None:
    sweep({"space": {"x": [1.0]}, "keep": "best", "direction": "minimize"})
    assert list(table(tmp_path / "study")["val/score"]) == [11]
    start = json.loads((tmp_path / "study/points/x=1.0/run/starts.txt").read_text())["flags"]
    assert [start[f"checkpoint.{key}"] for key in ("monitor", "mode")] == ["val/score", "min"]
    shutil.rmtree(tmp_path / "study")
    sweep({"space": {"x": [1.0]}, "keep": "all"})
    assert list(table(tmp_path / "study")["val/score"]) == [1]


def test_tpe_draws_as_many_points_as_asked_for(tmp_path: Path, sweep: Callable[..., str]) -> None:
    content = {"space": {"x": {"low": 0.0, "high": 6.0}, "y": [0, 0.5]}, "sampler": "tpe"}
    for trials in (4, 24):
        sweep(content | {"trials": trials})
    found = table(tmp_path / "study")
    assert len(found) == 24
    assert found["x"][12:].mean() > found["x"][:12].mean(), "by the results: the higher, the better"
    assert list(found["x"] + found["y"]) == pytest.approx(list(found["val/score"]))


GRID = {"space": {"x": [1.0, 2.0]}}
POSTGRES = "--storage=postgresql+psycopg://me:hush"


@pytest.mark.parametrize(
    ("content", "flags", "word"),
    [
        ({"space": {"x": []}}, [], "space: x"),
        ({"space": {"x": [1, 1]}}, [], "space: x"),
        ({"space": {"x": {"low": 1, "high": 2}}}, [], "space: x: a grid"),
        ({"space": {"x": {"low": 3, "high": 2}}, "sampler": "tpe", "trials": 2}, [], "low=3"),
        ({"space": {"x": {"low": 1, "hihg": 2}}}, [], "space.x"),
        (GRID | {"sampler": "tpe"}, [], "trials"),
        (GRID | {"spce": 1}, [], "spce"),
        (GRID, ["--x=3"], "--x"),
        (GRID, ["--run.name=mine"], "--run.name"),
        (GRID | {"keep": "best"}, ["--checkpoint.mode=min"], "--checkpoint.mode"),
        (GRID | {"keep": "best"}, ["--checkpoint.monitor=val/other"], "--checkpoint.monitor"),
        (GRID, ["--over", "x=3"], "--over x"),
        *(
            (GRID, [POSTGRES + rest], "--storage")
            for rest in ("@127.0.0.1:1/no", "@more@127.0.0.1:1/no", "")
        ),
    ],
)
def test_one_line_says_what_is_wrong(
    content: dict[str, Any], flags: list[str], word: str, sweep: Callable[..., str]
) -> None:
    said = sweep(content, *flags, code=2)
    assert word in said
    assert said.count("\n") == 1
    assert "hush" not in said


def test_a_point_left_before_its_first_sign_of_life_is_run(
    tmp_path: Path, sweep: Callable[..., str]
) -> None:
    sweep(GRID)
    study = optuna.load_study(study_name="fake", storage=f"sqlite:///{tmp_path}/study/study.db")
    study.enqueue_trial({"x": 1.0}, user_attrs={"point": 0})
    study.ask()
    assert "2 complete" in sweep(GRID, "--dead-after=1")
    assert all(trial.state.is_finished() for trial in study.trials)


def test_a_study_is_not_mixed_with_another(tmp_path: Path, sweep: Callable[..., str]) -> None:
    storage = f"--storage=sqlite:///{tmp_path}/shared.db"
    sweep(GRID, storage)
    assert "other values" in sweep({"space": {"x": [1.0, 3.0]}}, storage, code=2)
    shutil.rmtree(tmp_path / "study")
    assert "another folder" in sweep(GRID, storage, code=2)


def test_workers_share_what_is_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,GPU-ab")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    assert [share["CUDA_VISIBLE_DEVICES"] for share in shares(2)] == ["4,6", "5,GPU-ab"]
    assert [share["CUDA_VISIBLE_DEVICES"] for share in shares(5)] == ["4", "5", "6", "GPU-ab", "4"]


SWEEPS = sorted((ROOT / "configs" / "sweeps").glob("*.yaml"))
OURS = [path.stem for path in SWEEPS if not path.name.endswith(".wandb.yaml")]


@pytest.mark.parametrize("name", OURS)
def test_a_sweep_composes_from_any_folder(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sweep, _ = sweep_of([name])
    point = sweep.points()[0] or sweep.parameters(optuna.create_study().ask())
    text = yaml.safe_load(resolved(capsys, "fit", *sweep.arguments(point)))
    for key, value in point.items():
        found = text
        for part in key.split("."):
            found = found.get("init_args", found)[part]
        assert found == value, key


def test_missing_data_and_sizes_beyond_them_are_told_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def forked(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        code, said = launch(command[3:])
        return subprocess.CompletedProcess(command, code, said, said)

    monkeypatch.setattr("interventune.training.sweep.run.subprocess.run", forked)
    command = ["lei_sizes", "-c", "tiny_roberta", "--output", str(tmp_path / "study")]
    for flags, said in (
        ([], "train.jsonl"),
        (["--data.train_groups=[stories:train]"], "holds 2304"),
    ):
        assert main([*command, *flags]) == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "study").exists()


def test_values_of_any_kind_become_flags_and_names_of_folders() -> None:
    over = ["model.learning_rate=[1e-4]", "k=[null,[a/b,{c: 1}]]", "trainer.max_epochs=[3]"]
    sweep, _ = sweep_of(["demo_grid", "-c", "squad", "--over", *over, "--a=1"])
    first, second = (sweep.arguments(point) for point in sweep.points())
    assert (first[-1], second[-1]) == ("--k=null", '--k=["a/b", {"c": 1}]')
    assert {"--model.learning_rate=1e-4", "--a=1"} <= {
        *first
    }  # YAML's 1e-4 is a text; the flag is the same
    assert first[5].endswith("squad.yaml")
    first, second = (run.folder_name(point) for point in sweep.points())
    assert first == "trainer.max_epochs=3,model.learning_rate=1e-4,k=null"
    assert "/" not in second


def test_wandbs_sweep_is_ours() -> None:
    (ours, _), path = sweep_of(["lei_grid"]), ROOT / "configs/sweeps/lei.wandb.yaml"
    theirs = yaml.safe_load(path.read_text())
    assert {key: how["values"] for key, how in theirs["parameters"].items()} == ours.space
    assert theirs["metric"]["name"] == ours.metric
