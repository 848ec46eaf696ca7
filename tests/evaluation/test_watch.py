"""`interventune watch`: every checkpoint once, whatever happens meanwhile."""

import json
import logging
from pathlib import Path

import pandas as pd
import pytest

from interventune.evaluation import watch
from interventune.evaluation.__main__ import main
from interventune.evaluation.protocols import shift
from tests.evaluation.cells import Capsys, Patch
from tests.evaluation.checkpoints import save_ckpt, save_llama
from tests.support.processes import Started, run_module

FLAGS = ["shift", "--data", "stories:conversation_dev", "--limit", "4", "--variants", "ts_r"]


def run_with(folder: Path, *steps: int, ended: bool = True) -> Path:
    """A run that has kept these steps, each with other weights."""
    (folder / "checkpoints").mkdir(parents=True)
    for step in steps:
        save_ckpt(folder / f"checkpoints/step_{step:06}.ckpt", seed=step)
    (folder / "checkpoints/last.ckpt").touch()
    if ended:
        (folder / "metrics.json").write_text(json.dumps({"step": max(steps, default=0)}))
    return folder


def frame_of(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "results.csv")


@pytest.fixture
def opened(monkeypatch: Patch) -> list[str]:
    """The models that are opened."""
    paths, real = list[str](), shift.open_answerer

    def opening(path: str, *more: object, **named: object) -> object:
        paths.append(Path(path).stem)
        logging.getLogger(shift.__name__).warning("a warning of %s", Path(path).stem[-6:])
        return real(path, *more, **named)

    monkeypatch.setattr(shift, "open_answerer", opening)
    return paths


def test_it_goes_on_and_remembers(tmp_path: Path, opened: list[str], monkeypatch: Patch) -> None:
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
                forgetting = lambda rows, path: forget(path) or real(rows, path)  # noqa: E731
                monkeypatch.setattr(watch, "rows_file", forgetting)
            case 2:
                raise KeyboardInterrupt
            case 3:
                (run / file.format(5)).unlink()
                save_ckpt(run / file.format(10), seed=10)
            case 4:
                (run / "metrics.json").write_text('{"step": 10}')

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
    report = (output / "report.md").read_text()
    assert all(f"a warning of 0000{step}" in report for step in ("00", "05", "10"))


def test_two_watchers_evaluate_each_checkpoint_once(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", 0, 1, 2)
    command = ["watch", f"m={run}", "--every", "1", "--", *FLAGS, "--output", str(tmp_path / "w")]
    other = Started(run_module, "evaluation", command)
    assert main(command) == 0
    code, said = other.end()
    assert code == 0, said
    assert main([*FLAGS, "--checkpoint", f"m={run}", "--output", f"{tmp_path}/e"]) == 0
    pd.testing.assert_frame_equal(frame_of(tmp_path / "w"), frame_of(tmp_path / "e"))
    assert [*frame_of(tmp_path / "w")["step"].unique()] == [0, 1, 2]
    assert len([*(tmp_path / "w.rows").rglob("*.jsonl")]) == 3


def test_mistakes_are_named(tmp_path: Path, capsys: Capsys) -> None:
    save_llama(tmp_path / "trainer/checkpoint-5")
    (tmp_path / "trainer/checkpoint-5/trainer_state.json").write_text("{}")
    rows = ["--output", f"{tmp_path}/r"]
    for run, command, word in (
        ("x", [*FLAGS, *rows, "--checkpoint=y"], "without --checkpoint"),
        ("x", [*FLAGS, *rows], "x: no such run"),
        ("x", ["ask", "--context", "a", "--question", "b"], "with --output"),
        (f"x={tmp_path}/trainer", [*FLAGS, *rows], "trainer_state.json: the field 'global_step'"),
        (f"x={run_with(tmp_path / 'run')}", [*FLAGS, *rows], "keep_every_n_steps"),
    ):
        assert main(["watch", run, "--", *command]) == 2
        assert word in capsys.readouterr().err
    for stored in tmp_path.glob("r.rows/*/models.json"):
        stored.write_text("[1]")
    assert main(["watch", f"x={tmp_path}/run", "--", *FLAGS, *rows]) == 2
    assert "models.json: " in capsys.readouterr().err
