"""A resumed run is the one that its config.yaml describes, or is refused before it writes."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml

from interventune.training import precision
from interventune.training.callbacks.last_checkpoint import LastCheckpoint
from interventune.training.callbacks.run_record import changes
from interventune.training.cli import main as train
from interventune.training.run import CurveLogger, Run, keep_curves
from tests.mistakes.conftest import everything_in, refused
from tests.support.finished_runs import same
from tests.training.conftest import Capture, Commands, Patch, SmallData

STEPS, MORE = "--trainer.max_steps=2", "--trainer.max_steps=3"


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory, small_data: SmallData) -> Commands:
    """Two steps on data of its own with each of the seeds 0, 1, 2, in versions of these names."""
    folder = tmp_path_factory.mktemp("seeds")
    shutil.copy(small_data.qa_train, folder / "train.json")
    commands = Commands(folder / "runs", replace(small_data, qa_train=folder / "train.json"))
    for seed in "012":
        flags = f"{STEPS} --seed_everything={seed} --run.version={seed} --ckpt_path=auto"
        commands.run("fit", "squad", "bert", flags)
    return commands


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--run.version=0 --ckpt_path=auto --seed_everything=2", "seed_everything 2 (before: 0)"),
        ("--ckpt_path=auto --seed_everything=2 --model.learning_rate=1", "seed_everything 2"),
        ("--ckpt_path={last} --model.learning_rate=0.5", "model.learning_rate 0.5 (before: "),
        ("--run.version=0 --ckpt_path=last --trainer.max_steps=1", "max_steps 1 (before: 2)"),
        ("--ckpt_path=auto --trainer.precision=bf16-mixed", "trainer.precision"),
    ],
)
def test_another_run_is_refused(flags: str, words: str, seeds: Commands) -> None:
    """By the run's version, as the newest of its name, or by the path of its checkpoint."""
    last = seeds.root / "squad/0/checkpoints/last.ckpt"
    os.utime(last)
    before = everything_in(seeds.root)
    fit = seeds.of("fit", "squad", "bert", STEPS, flags.format(last=last))
    refused("training", fit, words, "--run.version")
    assert everything_in(seeds.root) == before


def test_other_data_and_a_missing_record_are_refused(seeds: Commands) -> None:
    home, data = seeds.root / "squad/1", seeds.data.qa_train
    here = "--seed_everything=1 --run.version=1 --ckpt_path=auto"
    fit = seeds.of("fit", "squad", "bert", STEPS, here)
    for path in (data, home / "config.yaml", home / "environment.json"):
        text = path.read_text()
        path.write_text(text.replace(": ", ":  ", 1))
        if path == data:
            refused("training", fit, str(data), "has changed")
        path.write_text("[" if path.suffix == ".yaml" else "{")
        refused("training", fit, str(path))
        path.unlink()
        refused("training", fit, str(path))
        path.write_text(text)
    train(fit)


def test_a_finished_run_keeps_its_record(
    seeds: Commands, capsys: Capture, caplog: pytest.LogCaptureFixture
) -> None:
    home = seeds.root / "squad/0"
    before = everything_in(home)
    changed = "--trainer.log_every_n_steps=5 --data.num_workers=1"
    seeds.run("fit", "squad", "bert", STEPS, "--run.version=0 --ckpt_path=auto", changed)
    assert f"run: {home}, 2 steps" in capsys.readouterr().out
    assert f"resuming {home} at step 2" in caplog.text
    refused("training", seeds.of("fit", "squad", "bert", "--run.version=0"), "holds another run")
    after = everything_in(home)
    for name in ("config.yaml", "environment.json", "metrics.json"):
        assert after[name] == before[name]


def test_more_steps_follow_the_schedule_that_the_record_has(seeds: Commands) -> None:
    """The learning rate is 0 at the end of two steps, not in the third of more."""
    best = seeds.root / "squad/2/checkpoints/best.ckpt"
    common = "--seed_everything=2 --trainer.log_every_n_steps=1 --run.version=more"
    fit = seeds.of("fit", "squad", "bert", common)
    other = ["--trainer.max_steps=6", f"--ckpt_path={best}", "--model.warmup_ratio=0"]
    refused("training", [*fit, *other], "model.warmup_ratio 0")
    home, saved = seeds.root / "squad/more", [torch.load(best, weights_only=True)]
    for steps, path in ((3, best), (6, "auto")):
        train([*fit, f"--trainer.max_steps={steps}", f"--ckpt_path={path}"])
        saved.append(torch.load(home / "checkpoints/last.ckpt", weights_only=True))
    text = (home / "config.yaml").read_text()
    assert "# from step 2: trainer.max_steps 3 (before: 2)\n" in text
    assert "# from step 3: trainer.max_steps 6 (before: 3)\n" in text
    config = yaml.safe_load(text)
    assert (config["trainer"]["max_steps"], config["ckpt_path"]) == (6, str(best))
    assert [checkpoint["global_step"] for checkpoint in saved] == [2, 3, 6]
    assert not same(saved[0]["state_dict"], saved[1]["state_dict"])


def test_a_moved_run_finds_its_best(seeds: Commands) -> None:
    home = seeds.root / "moved/deep/0"
    shutil.copytree(seeds.root / "squad/0", home)
    seeds.run(
        "fit", "squad", "bert", "--run.name=moved --run.version=deep/0 --ckpt_path=auto", MORE
    )
    last = torch.load(home / "checkpoints/last.ckpt", weights_only=True)
    (state,) = (state for state in last["callbacks"].values() if "best_k_models" in state)
    assert [*state["best_k_models"]] == [str(home / "checkpoints/best.ckpt")]
    assert last["global_step"] == 3


def test_the_schedule_follows_the_number_of_processes() -> None:
    run: Any = {"state": SimpleNamespace(fn="fit"), "checkpoint_callbacks": [None], "max_steps": -1}
    trainer: Any = SimpleNamespace(**run, world_size=2, accumulate_grad_batches=1)
    counts = {"total": {"ready": 5}, "current": {"ready": 5}}
    loops = {"fit_loop": {"epoch_loop.batch_progress": counts}}
    before = {"lr_schedulers": [{"last_epoch": 5}], "per_step": 1, "processes": 1, "loops": loops}
    LastCheckpoint(Run()).on_load_checkpoint(trainer, Any, before)
    assert before["lr_schedulers"] == [{"last_epoch": 2}]
    assert counts["total"] == counts["current"] == {"ready": 2}


def test_another_reference_of_advice_is_refused(seeds: Commands) -> None:
    start = shutil.copy(seeds.root / "squad/0/checkpoints/best.ckpt", seeds.root / "start.ckpt")
    flags = f"{STEPS} --backbone.checkpoint={start} --run.version=0 --ckpt_path=auto"
    seeds.run("fit", "lei_few_shot", "bert", flags)
    shutil.copy(seeds.root / "squad/1/checkpoints/best.ckpt", start)
    refused("training", seeds.of("fit", "lei_few_shot", "bert", flags), str(start), "has changed")


def test_values_of_every_kind_are_compared(tmp_path: Path) -> None:
    trainer: Any = {"max_epochs": -1, "max_steps": 5, "callbacks": None}
    saved: Any = {"data": {"files": ["a", "b"]}, "trainer": trainer}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(saved))
    allowed: Any = ({"max_steps": -1}, {"max_steps": 9, "max_epochs": 3}, {"devices": 4})
    allowed += ({"devices": 1, "accumulate_grad_batches": 2}, {"callbacks": [{"class_path": "A"}]})
    for change in allowed:
        assert len(changes(saved | {"trainer": trainer | change}, tmp_path, 3)) >= 1
    assert changes(saved, tmp_path, 3) == []
    for change, word in (
        ({"trainer": trainer | {"max_epochs": 3}}, "trainer.max_epochs 3"),
        ({"trainer": trainer | {"min_steps": 3}}, "trainer.min_steps 3"),
        ({"trainer": trainer | {"accumulate_grad_batches": 2}}, "accumulate_grad_batches 2"),
        ({"data": {"files": ["b", "a"]}}, 'data.files ["b", "a"]'),
        ({"data": {"files": None}}, 'data.files null (before: ["a", "b"])'),
        ({"data": {"files": ["a", "b"], "num_workerss": 1}}, "data.num_workerss"),
    ):
        with pytest.raises(ValueError, match="resume with the old value") as error:
            changes(saved | change, tmp_path, 3)
        assert word in str(error.value)


def test_the_folder_sets_no_precision(seeds: Commands, tmp_path: Path, monkeypatch: Patch) -> None:
    """Nor from the folder above it; a checkpoint may be named from its own folder."""
    (tmp_path / "environment.json").write_text('{"precision": "64-true"}')
    monkeypatch.setenv(precision.CHOSEN, "32-true")
    monkeypatch.chdir(tmp_path)
    flags = f"--trainer.precision=auto --run.root={tmp_path}"
    validate = seeds.of("validate", "squad", "bert", flags, "--run.version=here")
    assert train(validate).precision == "32-true"
    monkeypatch.setenv(precision.CHOSEN, "bf16-mixed")
    monkeypatch.chdir(seeds.root / "squad/0/checkpoints")
    fit = seeds.of("fit", "squad", "bert", flags, "--ckpt_path=last.ckpt", STEPS)
    assert train(fit).precision == "32-true"


@pytest.mark.parametrize("faster", [torch.float32, torch.bfloat16])
def test_auto_precision_stays(faster: torch.dtype, commands: Commands, monkeypatch: Patch) -> None:
    chosen, other = ("32-true", "bf16-mixed")[:: 1 if faster == torch.float32 else -1]
    monkeypatch.setenv(precision.CHOSEN, "")  # so that it is forgotten afterwards
    monkeypatch.delenv(precision.CHOSEN)
    monkeypatch.setattr(precision, "products_per_second", lambda dtype: float(dtype == faster))
    for steps in (1, 2):
        flags = f"--trainer.precision=auto --ckpt_path=auto --trainer.max_steps={steps}"
        home = commands.run("fit", "squad", "bert", flags)
        assert json.loads((home / "environment.json").read_text())["precision"] == chosen
        monkeypatch.setenv(precision.CHOSEN, other)


def test_curves_of_any_names_resume(tmp_path: Path) -> None:
    """Also of values without a step, as a user's callback may log them."""
    logger = CurveLogger(Run(root=str(tmp_path), version="a"), None)
    logger.log_metrics({"first": 1.0})
    logger.log_metrics({'a,b\n"c"': 2.0, "epoch": 1}, 3)
    logger.log_metrics({"mine": float("nan")})
    logger.log_metrics({"late": 3.0}, 6)
    path = Path(logger.log_dir) / "metrics.csv"
    whole = path.read_text()
    keep_curves(path, 6)
    assert path.read_text() == whole.replace("7,,late,3.0\n", "")
    header, rows = whole.split("\n", 1)
    torn = ('6,,"a,b', '6,,"a\n', "6,,x,1", "6,,\n", ",,x,1.0\n")
    damages = [("", ""), (rows, rows), ("\n", ""), *((whole + end, rows) for end in torn)]
    for damaged, left in damages:
        path.write_text(damaged)
        keep_curves(path, 9)
        assert path.read_text() == f"{header}\n{left}", damaged
