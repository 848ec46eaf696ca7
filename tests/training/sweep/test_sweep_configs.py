"""Every shipped sweep is valid, and `fit` understands its points; wandb's commands too."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import optuna
import pytest
import yaml

from tests.training.conftest import launch, resolved
from training.sweep import run
from training.sweep.run import main, sweep_of

ROOT = Path(__file__).resolve().parents[3]
SWEEPS = sorted((ROOT / "configs" / "sweeps").glob("*.yaml"))
OURS = [path.stem for path in SWEEPS if not path.name.endswith(".wandb.yaml")]
SIZES = "data.limit_train_groups"


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

    monkeypatch.setattr("training.sweep.run.subprocess.run", forked)
    command = ["lei_sizes", "-c", "tiny_roberta", "--output", str(tmp_path / "study")]
    for flags, said in (([], "train.jsonl"), (["--data.train_groups=[stories:train]"], "holds 2304")):
        assert main([*command, *flags]) == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "study").exists()


def test_values_of_any_kind_become_flags_and_names_of_folders() -> None:
    over = ["model.learning_rate=[1e-4]", "k=[null,[a/b,{c: 1}]]", "trainer.max_epochs=[3]"]
    sweep, _ = sweep_of(["demo_grid", "-c", "squad", "--over", *over, "--a=1"])
    first, second = (sweep.arguments(point) for point in sweep.points())
    assert (first[-1], second[-1]) == ("--k=null", '--k=["a/b", {"c": 1}]')
    assert {"--model.learning_rate=1e-4", "--a=1"} <= {*first}  # YAML's 1e-4 is a text; the flag is the same
    assert first[5].endswith("squad.yaml")
    first, second = (run.folder_name(point) for point in sweep.points())
    assert first == "trainer.max_epochs=3,model.learning_rate=1e-4,k=null"
    assert "/" not in second


def test_wandbs_sweep_is_ours() -> None:
    (ours, _), path = sweep_of(["lei_grid"]), ROOT / "configs/sweeps/lei.wandb.yaml"
    theirs = yaml.safe_load(path.read_text())
    assert {key: how["values"] for key, how in theirs["parameters"].items()} == ours.space
    assert theirs["metric"]["name"] == ours.metric
