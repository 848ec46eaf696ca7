"""A run's folder belongs to one process; its files are whole and repeat the run; predictions."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from interventune.data_modules.schema.questions import write_records
from interventune.data_modules.sources import read_questions
from interventune.evaluation.__main__ import main as evaluate
from interventune.evaluation.results import NUMBERS
from interventune.training.callbacks.last_checkpoint import AtomicCheckpointIO
from interventune.training.cli import main as train
from interventune.training.run import Run, remove_unused
from tests.evaluation.cells import Cells
from tests.mistakes.conftest import everything_in
from tests.support.processes import Started, run_module, wait_for
from tests.training.conftest import Capture, Commands, Patch, curves, metrics_of


def test_no_version_is_given_twice(tmp_path: Path) -> None:
    run = Run(root=str(tmp_path), name="run")
    with ThreadPoolExecutor(4) as pool:
        versions = list(pool.map(lambda _: run.new_version(), range(80)))
    assert sorted(versions) == sorted(f"version_{n}" for n in range(80))


def test_only_the_folder_of_a_failed_start_is_removed(tmp_path: Path) -> None:
    for names in ([".lock"], [".lock", "config.yaml"]):
        (folder := tmp_path / names[-1]).mkdir()
        for name in names:
            (folder / name).touch()
        remove_unused(folder)
    assert os.listdir(tmp_path) == ["config.yaml"]


def test_a_run_in_training_is_not_gone_on_with(commands: Commands, monkeypatch: Patch) -> None:
    endless = "--trainer.max_epochs=100000 --run.save_every_n_steps=1"
    fit = commands.of("fit", "squad", "bert", endless)
    first = Started(run_module, "training", fit)
    try:
        last = commands.root / "squad" / "version_0" / "checkpoints" / "last.ckpt"
        wait_for(last.exists)
        with monkeypatch.context() as patched:
            patched.setattr("interventune.training.cli.LET_GO_S", 0.0)
            with pytest.raises(ValueError, match="is being trained by another process"):
                commands.run("fit", "squad", "bert", "--ckpt_path=auto")
    finally:
        first.end(0)
    # Its death lets the folder go.
    train([*fit, "--trainer.max_epochs=-1", "--trainer.max_steps=100", "--ckpt_path=auto"])
    assert [path.name for path in (commands.root / "squad").iterdir()] == ["version_0"]


def test_the_saved_configuration_makes_the_run_again(commands: Commands) -> None:
    for _ in range(2):  # the second goes on at the end
        flags = "--run.version=mine --ckpt_path=auto --trainer.max_steps=8"
        home = commands.run("fit", "squad", "bert", flags)
    saved = home / "config.yaml"
    train(["predict", "-c", str(saved), f"--data.predict_qa.main={commands.data.qa_dev}"])
    train(["fit", "-c", str(saved)])
    assert metrics_of(commands.root / "squad" / "version_1") == metrics_of(home)
    before = saved.read_text()
    train(["validate", "-c", str(saved), "--run.version=mine", "--ckpt_path=last"])
    assert saved.read_text() == before


def test_a_full_disk_keeps_the_checkpoint_before(tmp_path: Path, monkeypatch: Patch) -> None:
    path, save = tmp_path / "last.ckpt", torch.save
    AtomicCheckpointIO().save_checkpoint({"step": 1}, path)
    monkeypatch.setattr(torch, "save", lambda content, _: save(content, "/dev/full"))
    with pytest.raises(OSError, match=r"last\.ckpt: cannot be written"):
        AtomicCheckpointIO().save_checkpoint({"weights": torch.zeros(100_000)}, path)
    monkeypatch.undo()
    assert AtomicCheckpointIO().load_checkpoint(path) == {"step": 1}
    assert os.listdir(tmp_path) == ["last.ckpt"]


def test_what_max_steps_ends_is_validated(commands: Commands, capsys: Capture) -> None:
    fit = ("fit", "squad", "bert", "--ckpt_path=auto", "--data.qa_batch_size=4")
    home = commands.run(*fit, "--trainer.max_steps=3")
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith(f"run: {home}, 3 steps; best.ckpt: val/qa/f1 ")
    commands.run(*fit, "--trainer.max_steps=6", "--trainer.max_epochs=2")
    assert [step for step, _ in curves(home, "val/qa/f1")] == [3, 6]
    assert metrics_of(home)["step"] == 6


def test_a_checkpoint_is_measured_as_it_was_trained(commands: Commands, capsys: Capture) -> None:
    """Whatever the configuration says, and in a folder of their own."""
    here = "--run.version=lr[1e-4]"  # a version's name is no pattern
    own = "--backbone.config.hidden_act=relu --data.encoding.max_length=80"
    home = commands.run("fit", "squad", "bert", "--trainer.max_steps=2", own, here)
    before = everything_in(home)
    capsys.readouterr()
    sets = f"--data.test_qa.main={commands.data.qa_dev}"
    for command, key in (("test", "test/qa/f1"), ("validate", "val/qa/f1")):
        other = commands.run(command, "squad", "bert", sets, "--ckpt_path=last", here)
        assert metrics_of(other)[key] == pytest.approx(metrics_of(home)["val/qa/f1"], abs=1e-6)
        config = (other / "config.yaml").read_text()
        assert "max_length: 80" in config
        assert str(home / "checkpoints" / "last.ckpt") in config
    assert everything_in(home) == before
    assert "test/qa/n 13" in capsys.readouterr().out.splitlines()


def test_nothing_goes_on_from_weights_alone(commands: Commands) -> None:
    fit = ("fit", "squad", "bert", "--checkpoint.save_weights_only=true")
    home = commands.run(*fit, "--trainer.max_steps=2")
    with pytest.raises(ValueError, match=r"--backbone\.checkpoint"):
        commands.run(*fit, "--trainer.max_steps=4", f"--ckpt_path={home}/checkpoints/best.ckpt")


@pytest.mark.parametrize("architecture", ["xlnet", "llama"])
def test_predictions_have_equal_bias(architecture: str, commands: Commands, tmp_path: Path) -> None:
    home, data = commands.run("fit", "squad", architecture, "--trainer.max_steps=2"), commands.data
    ckpt = home / "checkpoints/last.ckpt"
    sets = "--data=interventune.data_modules.groups_data.GroupsDataModule --data.limit_val_qa=3"
    sets += f" --data.predict_groups={{dev: {data.groups_dev}}} --data.limit_val_groups=1"
    sets += f" --data.predict_qa={{questions: {data.qa_dev}}} --ckpt_path={ckpt}"
    folder = commands.run("predict", "squad", architecture, sets) / "predictions"
    texts = json.loads((folder / "questions.json").read_text())
    examples = {example.id: example for example in read_questions(data.qa_dev)}
    assert texts.keys() == examples.keys()
    if architecture == "xlnet":
        assert all(text in examples[key].context for key, text in texts.items())
    tables = []
    for name, what in (
        ("predictions", ["--predictions", str(folder / "dev.jsonl")]),
        ("checkpoint", ["--checkpoint", str(ckpt), "--data", str(data.groups_dev)]),
    ):
        assert evaluate(["bias", *what, "--output", str(tmp_path / name)]) == 0
        frame = Cells(tmp_path / name).frame.query("`class` != 'none' and against == ''")
        frame = frame[~frame["measure"].isin(["carry", "kept"])]  # as predicted
        numbers = ("checkpoint", "data", *NUMBERS)
        place = [column for column in frame.columns if column not in numbers]
        tables.append(frame.set_index(place)["value"].to_dict())
    assert tables[0] == pytest.approx(tables[1], abs=1e-5)

    # Answers with one id are not overwritten.
    example, rows = examples[min(texts)], tmp_path / "rows.jsonl"
    write_records([example, replace(example, variant="ts")], rows)
    flags = f"--ckpt_path={ckpt} --data.predict_qa.main={rows}"
    with pytest.raises(ValueError, match=f"several questions of id '{example.id}'"):
        commands.run("predict", "squad", architecture, flags)
