"""`interventune watch`: every checkpoint once, whatever happens meanwhile."""

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from interventune.evaluation import watch
from interventune.evaluation.__main__ import main
from interventune.evaluation.protocols import shift
from tests.evaluation.checkpoints import Capsys, Patch, save_ckpt

FLAGS = ["shift", "--data", "stories:conversation_dev", "--limit", "4", "--variants", "ts_r"]


def run_with(folder: Path, *steps: int, ended: bool = True) -> Path:
    """A run that has kept these steps, each with other weights."""
    (folder / "checkpoints").mkdir(parents=True)
    for step in steps:
        save_ckpt(folder / f"checkpoints/step_{step:06}.ckpt", seed=step)
    (folder / "checkpoints/last.ckpt").touch()
    if ended:
        (folder / "metrics.json").write_text("{}")
    return folder


def frame_of(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "results.csv")


@pytest.fixture
def opened(monkeypatch: Patch) -> list[str]:
    """The models that are opened."""
    paths, real = list[str](), shift.open_answerer

    def opening(path: str, *more: object, **named: object) -> object:
        paths.append(Path(path).stem)
        return real(path, *more, **named)

    monkeypatch.setattr(shift, "open_answerer", opening)
    return paths


def test_its_report_is_that_of_evaluate(tmp_path: Path, opened: list[str]) -> None:
    run = run_with(tmp_path / "run", 0, 5, 10)
    assert (
        main(["watch", f"m={run}", "--every", "1", "--", *FLAGS, "--output", f"{tmp_path}/w"]) == 0
    )
    assert sorted(opened) == sorted(
        ["step_000000", *["step_000000", "step_000005"], *["step_000000", "step_000010"]]
    )
    assert main([*FLAGS, "--checkpoint", f"m={run}", "--output", f"{tmp_path}/e"]) == 0
    pd.testing.assert_frame_equal(frame_of(tmp_path / "w"), frame_of(tmp_path / "e"))


def test_it_goes_on_shares_and_remembers(
    tmp_path: Path, opened: list[str], monkeypatch: Patch, capsys: Capsys
) -> None:
    """Steps appear, one is deleted, one is written again, another watcher has one, a kill."""
    run, output = run_with(tmp_path / "run", ended=False), tmp_path / "w"
    file = "checkpoints/step_{:06}.ckpt"
    command = ["watch", f"m={run}", "--every", "1", "--", *FLAGS, "--output", str(output)]
    events = iter(range(9))

    def sleep(_: float) -> None:
        match next(events):
            case 0:
                save_ckpt(run / file.format(0), seed=0)
            case 1:
                save_ckpt(run / file.format(5), seed=5)
                (run / file.format(7)).write_bytes(b"")  # gone before it is read
                monkeypatch.setattr(
                    watch, "rows_file", lambda rows, path: forget(path) or real(rows, path)
                )
            case 2:
                raise KeyboardInterrupt
            case 3:
                (run / file.format(5)).unlink()
                save_ckpt(run / file.format(10), seed=10)
            case 4:
                (run / "metrics.json").write_text("{}")

    def forget(path: str) -> None:
        if path.endswith("7.ckpt"):
            Path(path).unlink(missing_ok=True)

    real = watch.rows_file
    monkeypatch.setattr(watch.time, "sleep", sleep)
    assert main(command) == 130
    assert main(command) == 0
    assert [*frame_of(output)["step"].unique()] == [0, 5, 10]
    assert opened.count("step_000005") == 1
    assert opened.count("step_000010") == 1


def test_two_watchers_evaluate_each_checkpoint_once(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", 0, 1, 2)
    command = ["watch", f"m={run}", "--every", "1", "--", *FLAGS, "--output", str(tmp_path / "w")]
    other = subprocess.Popen([sys.executable, "-m", "interventune", *command])
    assert main(command) == 0
    assert other.wait(600) == 0
    assert [*frame_of(tmp_path / "w")["step"].unique()] == [0, 1, 2]
    assert len([*(tmp_path / "w.rows").rglob("*.jsonl")]) == 3


def test_mistakes_are_named(tmp_path: Path, capsys: Capsys) -> None:
    for command, word in (
        (
            ["watch", "x", "--", *FLAGS, "--output", "r", "--checkpoint", "y"],
            "without --checkpoint",
        ),
        (["watch", "x"], "an evaluation"),
    ):
        assert main(command) == 2
        assert word in capsys.readouterr().err
