"""A sweep finishes whatever dies under it, and runs no point twice. Every shipped one is valid."""

import json
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import ANY, Mock

import pandas as pd
import psutil
import pytest
import yaml

from interventune.storage.documents import source_digest
from interventune.training.sweep import run, study
from interventune.training.sweep.run import main, shares, sweep_of
from interventune.training.sweep.study import Grid
from tests.support.processes import Started, wait_for
from tests.training.conftest import Capture, Patch, resolved

ROOT = Path(__file__).resolve().parents[3]
Sweep = Callable[..., str]
FAKE = (sys.executable, "-S", str(Path(__file__).with_name("fake_fit.py")))
SMALL = {"study": "fake", "metric": "val/score", "direction": "maximize", "configs": []}
GRID = {"space": {"x": [1.0, 2.0]}}
SWEEPS = (path.stem for path in (ROOT / "configs" / "sweeps").glob("*.yaml"))
OURS = sorted(name for name in SWEEPS if not name.endswith(".wandb"))


def written(folder: Path, content: dict[str, Any]) -> str:
    path = folder / "sweep.yaml"
    path.write_text(yaml.safe_dump(content))
    return str(path)


def table(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "study.csv").set_index("point")


def work(*arguments: str) -> None:
    """A worker whose `fit` is fake_fit.py, and who waits for others in shorter steps."""
    study.FIT, run.check_first_point = FAKE, print
    study.time = Mock(sleep=lambda _: time.sleep(0.05), monotonic=time.monotonic)
    sys.exit(main(arguments))


def starts(study: Path) -> dict[str, int]:
    """How often `fit` was started, by the value of x."""
    found = study.glob("points/*/run/starts.txt")
    return {path.parents[1].name: len(path.read_text().splitlines()) for path in found}


@pytest.mark.parametrize("sampler", ["grid", "tpe"])
def test_workers_share_a_study_whatever_ends_them(sampler: str, tmp_path: Path) -> None:
    """The `fit` of a killed worker ends by itself; others go on elsewhere. None is run twice."""
    home, go_on = tmp_path / "study", tmp_path / "go_on"
    content = SMALL | {"space": {"x": [1.0, 2.0, 3.0, 4.0]}, "flags": [f"--until={go_on}"]}
    if sampler == "tpe":
        content |= {"space": {"x": {"low": 1.0, "high": 4.0}}, "sampler": "tpe", "trials": 4}
    command, workers, order = (written(tmp_path, content), f"--output={home}"), [], list[str]()
    for number in (1, 2, 3):
        workers.append(Started(work, *command))
        wait_for(lambda number=number: len(starts(home)) == number)
        order += [name for name in starts(home) if name not in order]
    (fit_of_third,) = psutil.Process(workers[2].pid).children()
    for worker, end in zip(workers, (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL), strict=True):
        psutil.Process(worker.pid).send_signal(end)
    assert [worker.end()[0] for worker in workers] == [-9, 130, -9]
    fit_of_third.kill()
    go_on.touch()
    workers = [Started(work, *command) for _ in range(2)]
    assert [worker.end() for worker in workers] == [(0, ANY), (0, ANY)]
    times = starts(home)
    assert [times.pop(name) for name in order] == [1, 2, 2]
    assert list(times.values()) == [1]
    assert list(table(home)["val/score"]) == list(table(home)["x"])


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: Patch, capfd: Capture) -> Sweep:
    """The command in this process, with fake_fit.py: what it says, if it ends with `code`."""
    monkeypatch.setattr(study, "FIT", FAKE)
    monkeypatch.setattr(run, "check_first_point", lambda sweep: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)

    def command(content: dict[str, Any], *flags: str, code: int = 0) -> str:
        file, output = written(tmp_path, SMALL | content), f"--output={tmp_path / 'study'}"
        assert main([file, output, *flags]) == code
        return "".join(capfd.readouterr())

    return command


def test_results_of_old_data_are_refused(tmp_path: Path, sweep: Sweep, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("dev.json", "more.yaml"):
        Path(name).write_text("")
    content = {"space": {"x": [1.0]}, "configs": ["more.yaml"]}
    assert "1 complete" in sweep(content)
    environment = {"data": {"dev.json": source_digest("dev.json")}}
    Path("study/points/x=1.0/run/environment.json").write_text(json.dumps(environment))
    assert "1 complete" in sweep(content)
    Path("dev.json").write_text("other")
    assert "dev.json: has changed since" in sweep(content, code=2)
    Path("more.yaml").write_text("a: 1")
    assert "begun with other values, flags or configs" in sweep(content, code=2)
    assert "--over x, line 1: not YAML" in sweep(content, "--over", "x=[", code=2)


def test_failed_points_have_a_reason(tmp_path: Path, sweep: Sweep, monkeypatch: Patch) -> None:
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
    assert start["job"] is None
    assert (start["flags"]["twice"], start["flags"]["ckpt_path"]) == ("1.0", "auto")
    for flags, times in (((), 1), (("--again",), 2)):
        sweep(content, *flags)
        counts = starts(tmp_path / "study")
        assert (counts["x=-1.0"], counts["x=1.0"]) == (times, 1)


def test_points_are_compared_by_the_kept_weights(tmp_path: Path, sweep: Sweep) -> None:
    sweep({"space": {"x": [1.0]}, "keep": "best", "direction": "minimize"})
    assert list(table(tmp_path / "study")["val/score"]) == [11]
    start = json.loads((tmp_path / "study/points/x=1.0/run/starts.txt").read_text())["flags"]
    assert [start[f"checkpoint.{key}"] for key in ("monitor", "mode")] == ["val/score", "min"]
    shutil.rmtree(tmp_path / "study")
    sweep({"space": {"x": [1.0]}, "keep": "all"})
    assert list(table(tmp_path / "study")["val/score"]) == [1]


def test_tpe_draws_as_many_points_as_asked_for(tmp_path: Path, sweep: Sweep) -> None:
    content = {"space": {"x": {"low": 0.0, "high": 6.0}, "y": [0, 0.5]}, "sampler": "tpe"}
    for trials in (4, 24):
        sweep(content | {"trials": trials})
    found = table(tmp_path / "study")
    assert len(found) == 24
    assert found["x"][12:].mean() > found["x"][:12].mean(), "by the results: the higher, the better"
    assert list(found["x"] + found["y"]) == pytest.approx(list(found["val/score"]))


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
        (GRID | {"keep": "best"}, ["--checkpoint.monitor=val/other"], "--checkpoint.monitor"),
        (GRID, ["--over", "x=3"], "--over x"),
        (GRID, ["--over", "run.root=[a,b]"], "--run.root"),
    ],
)
def test_mistakes_cost_one_line(content: Any, flags: list[str], word: str, sweep: Sweep) -> None:
    said = sweep(content, *flags, code=2)
    assert word in said
    assert said.count("\n") == 1


def test_a_study_is_not_mixed_with_another(tmp_path: Path, sweep: Sweep) -> None:
    sweep(GRID)
    assert "other values" in sweep({"space": {"x": [1.0, 3.0]}}, code=2)


def test_workers_share_what_is_visible(monkeypatch: Patch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,GPU-ab")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    assert [share["CUDA_VISIBLE_DEVICES"] for share in shares(2)] == ["4,6", "5,GPU-ab"]
    assert [share["CUDA_VISIBLE_DEVICES"] for share in shares(5)] == ["4", "5", "6", "GPU-ab", "4"]


@pytest.mark.parametrize("name", OURS)
def test_a_sweep_composes(name: str, tmp_path: Path, capsys: Capture, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)
    sweep, _ = sweep_of([name])
    point = sweep.first()
    text = yaml.safe_load(resolved(capsys, "fit", *sweep.arguments(point)))
    for key, value in point.items():
        found = text
        for part in key.split("."):
            found = found.get("init_args", found)[part]
        assert found == value, key


def test_missing_data_and_larger_sizes_are_refused_first(tmp_path: Path, capsys: Capture) -> None:
    command = ["lei_sizes", "-c", "tiny_roberta", "--output", str(tmp_path / "study")]
    known = "--data.train_groups=[stories:train]"
    for flags, words in (([], "train.jsonl"), ([known], "holds 2304")):
        assert main([*command, *flags]) == 2
        assert words in capsys.readouterr().err
    assert not (tmp_path / "study").exists()


def test_values_of_any_kind_become_flags_and_names_of_folders() -> None:
    over = ["model.learning_rate=[1e-4]", "k=[null,[a/b,2026-01-01]]", "trainer.max_epochs=[3]"]
    sweep, _ = sweep_of(["demo_grid", "-c", "squad", "--over", *over, "--a=1"])
    points = Grid(sweep, Path()).points()
    first, second = (sweep.arguments(point.parameters) for point in points)
    assert (first[-1], second[-1]) == ("--k=null", '--k=["a/b", "2026-01-01"]')
    # YAML's 1e-4 is a text; the flag is the same.
    assert {"--model.learning_rate=1e-4", "--a=1"} <= {*first}
    assert first[2].endswith("squad.yaml")
    first, second = (point.name for point in points)
    assert first == "trainer.max_epochs=3,model.learning_rate=1e-4,k=null"
    assert "/" not in second


def test_wandbs_sweep_is_ours() -> None:
    (ours, _), path = sweep_of(["lei_grid"]), ROOT / "configs/sweeps/lei.wandb.yaml"
    theirs = yaml.safe_load(path.read_text())
    assert {key: how["values"] for key, how in theirs["parameters"].items()} == ours.space
    assert theirs["metric"]["name"] == ours.metric


def test_an_experiment_is_a_sweep_over_its_seeds(tmp_path: Path) -> None:
    sweep, _ = sweep_of(["-c", "squad_ibt", "-c", "minilm", "--over", "seed_everything=[0,1]"])
    assert (sweep.study, sweep.metric, sweep.direction) == ("squad_ibt", "val/qa/f1", "maximize")
    assert [Path(path).stem for path in sweep.configs] == ["squad_ibt", "minilm"]
    assert sweep.space == {"seed_everything": [0, 1]}
    with pytest.raises(ValueError, match="name a sweep file"):
        sweep_of(["--over", "seed_everything=[0,1]"])
    for text, word in (("null", "checkpoint.monitor"), ("[monitor]", "e.yaml: checkpoint: should")):
        (tmp_path / "e.yaml").write_text(f"checkpoint: {text}")
        with pytest.raises(ValueError, match=word):
            sweep_of(["-c", f"{tmp_path}/e.yaml", "--over", "x=[0,1]"])
