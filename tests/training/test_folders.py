"""A run's folder belongs to one process; what it saves is whole, and makes the run again."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from storage.errors import DataError
from tests.support.processes import Started, run_module
from tests.training.conftest import Commands, metrics_of
from training.cli import main as train
from training.run import Run, remove_unused
from training.stopping.last_checkpoint import AtomicCheckpointIO


def test_no_version_is_given_twice(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        versions = list(pool.map(lambda _: Run(root=str(tmp_path), name="run").new_version(), range(80)))
    assert sorted(versions) == sorted(f"version_{n}" for n in range(80))


def test_a_failed_start_leaves_its_version_free(tmp_path: Path) -> None:
    run, folder = Run(root=str(tmp_path), name="run", version="mine"), tmp_path / "run" / "mine"
    folder.mkdir(parents=True)
    (folder / ".lock").touch()
    (folder / "config.yaml").touch()
    remove_unused(folder)
    run.refuse_taken()  # it failed before its first checkpoint
    (folder / "metrics.json").touch()
    with pytest.raises(ValueError, match="holds another run"):
        run.refuse_taken()
    for name in ("config.yaml", "metrics.json"):
        (folder / name).unlink()
    remove_unused(folder)
    assert not folder.exists()


def test_a_run_that_is_still_training_is_not_gone_on_with(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit = commands.of("fit", "squad", "bert", "--trainer.max_epochs=100000", "--run.save_every_n_steps=1")
    first = Started(run_module, "training", fit)
    try:
        last = commands.root / "squad" / "version_0" / "checkpoints" / "last.ckpt"
        end = time.monotonic() + 120
        while not last.exists() and time.monotonic() < end and first.is_alive():
            time.sleep(0.1)
        assert last.exists()
        with monkeypatch.context() as patched:
            patched.setattr("training.cli.LET_GO_S", 0.0)
            for command in ("fit", "validate"):
                with pytest.raises(ValueError, match="is being trained by another process"):
                    commands.run(command, "squad", "bert", "--ckpt_path=auto")
    finally:
        first.kill()
        first.join()
    # Its death lets the folder go.
    train([*fit, "--trainer.max_epochs=-1", "--trainer.max_steps=100", "--ckpt_path=auto"])
    assert [path.name for path in (commands.root / "squad").iterdir()] == ["version_0"]


def test_the_saved_configuration_makes_the_run_again(commands: Commands) -> None:
    for _ in range(2):  # the second goes on at the end
        flags = ("--run.version=mine", "--ckpt_path=auto", "--trainer.max_steps=8")
        home = commands.run("fit", "squad", "bert", *flags)
    saved = home / "config.yaml"
    train(["predict", "-c", str(saved), f"--data.predict_qa.main={commands.data.qa_dev}"])
    train(["fit", "-c", str(saved)])
    assert metrics_of(commands.root / "squad" / "version_1") == metrics_of(home)
    before = saved.read_text()
    train(["validate", "-c", str(saved), "--run.version=mine", "--ckpt_path=last"])
    assert saved.read_text() == before


def test_a_full_disk_keeps_the_checkpoint_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, save = tmp_path / "last.ckpt", torch.save
    AtomicCheckpointIO().save_checkpoint({"step": 1}, path)
    monkeypatch.setattr(torch, "save", lambda content, _: save(content, "/dev/full"))
    with pytest.raises(OSError, match=r"last\.ckpt: cannot be written"):
        AtomicCheckpointIO().save_checkpoint({"weights": torch.zeros(100_000)}, path)
    monkeypatch.undo()
    assert AtomicCheckpointIO().load_checkpoint(path) == {"step": 1}
    assert os.listdir(tmp_path) == ["last.ckpt"]


def test_a_checkpoint_runs_no_code(tmp_path: Path) -> None:
    path = tmp_path / "foreign.ckpt"
    torch.save({"state_dict": Path}, path)
    with pytest.raises(DataError, match=r"foreign\.ckpt: no readable checkpoint") as caught:
        AtomicCheckpointIO().load_checkpoint(path, weights_only=False)
    assert "weights_only" not in str(caught.value)  # torch's advice would run what the file says
