"""Every shipped sweep is valid, and `fit` understands its trials; wandb's commands too."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.forking import python
from tests.training.conftest import resolved
from training.sweep.command import main as sweep
from training.sweep.file import grid_points, read_sweep
from training.sweep.point import FIT, Study

ROOT = Path(__file__).resolve().parents[3]
SWEEPS = sorted((ROOT / "configs" / "sweeps").glob("*.yaml"))
OURS = [path for path in SWEEPS if not path.name.endswith(".wandb.yaml")]
WANDB = [path for path in SWEEPS if path.name.endswith(".wandb.yaml")]


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.stem)
def test_a_sweep_composes_without_files_from_any_folder(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sweep = read_sweep(path)
    assert sweep.study == path.stem
    text = yaml.safe_load(resolved(capsys, "fit", *sweep.fit_arguments(sweep.first_parameters())))
    for key, value in sweep.first_parameters().items():
        found = text
        for name in key.split("."):
            found = found.get("init_args", found)[name]
        listed = isinstance(value, str) and value.startswith("[")
        assert found == (json.loads(value) if listed else value), key


def test_the_papers_grids() -> None:
    grid, sizes = (read_sweep(ROOT / "configs" / "sweeps" / f"lei_{name}.yaml") for name in ("grid", "sizes"))
    assert len(grid_points(grid.space)) == 16
    # Of 4096 questions three quarters belong to groups of four; 37968 is four times 9492.
    assert sizes.space["data.limit_train_groups"] == [
        *(n * 3 // 16 for n in (64, 256, 1024, 4096)),
        37968 // 4,
    ]
    assert {key: sizes.space[key] for key in grid.space} == grid.space


def test_lei_few_shot_is_the_papers_recipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Appendix B.3 and LEI spec 4.1 to 4.4; an epoch's steps are counted in test_samplers."""
    monkeypatch.chdir(ROOT)
    config = yaml.safe_load(resolved(capsys, "fit", "-c", "lei_few_shot", "-c", "roberta_large_squad"))
    data, model = (config[name]["init_args"] for name in ("data", "model"))
    assert (data["groups_per_class"], data["qa_batch_size"], data["qa_every"]) == (1, 4, 1)
    assert (data["encoding"]["order"], data["encoding"]["max_length"]) == ("context_first", 512)
    assert (model["warmup_ratio"], model["weight_decay"]) == (0, 0)
    assert (model["dominance"], model["irrelevant_target"]) == ("sources", "no_advice")
    assert model["loss"]["init_args"]["form"] == "score"


DATA = [
    "--data.val_groups.main=stories:heldout",
    "--data.train_qa=stories:train",
    "--data.val_qa.main=stories:dev",
]


@pytest.mark.parametrize("name", ["lei_grid", "lei_sizes"])
def test_the_papers_grids_do_not_start_without_data(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep([name, "--output", str(tmp_path / "study")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    for flag in ("--data.train_groups=[FILE]", "--data.val_groups.main=FILE", "--data.train_qa=FILE"):
        assert flag in said
    assert not (tmp_path / "study").exists()


def test_sizes_that_the_file_does_not_reach_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, every size beyond the file was its last one again."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("training.sweep.command.Study", partial(Study, command=(python(), *FIT[1:])))
    command = ["lei_sizes", "-c", "tiny_roberta", "--data.train_groups=[stories:train]", *DATA]
    assert sweep([*command, "--output", str(tmp_path / "study")]) == 2
    said = capsys.readouterr().err
    assert "9492 groups are asked for, and stories:train holds 2304" in said
    assert "--over data.limit_train_groups=[12, 48, 192, 768]" in said
    assert not (tmp_path / "study").exists()


def test_a_trial_of_the_papers_grids_validates_at_its_end_and_keeps_its_weights() -> None:
    arguments = read_sweep(ROOT / "configs" / "sweeps" / "lei_sizes.yaml").fit_arguments(
        {"data.limit_train_groups": 48, "trainer.max_epochs": 7}
    )
    assert "--trainer.check_val_every_n_epoch=7" in arguments
    assert "--checkpoint.save_weights_only=true" in arguments


def wandb_command(sweep: dict[str, Any]) -> list[str]:
    """What wandb's agent would run for a trial, by wandb's own functions."""
    utils = pytest.importorskip("wandb.sdk.launch.sweeps.utils")
    chosen = {}
    for key, how in sweep["parameters"].items():
        chosen[key] = {"value": how["values"][0] if "values" in how else how["min"]}
    made = utils.create_sweep_command_args({"args": chosen})
    replaced = {"${env}": ["/usr/bin/env"], "${args}": made["args"]}
    command = utils.create_sweep_command(sweep["command"])
    return [part for word in command for part in replaced.get(word, [word])]


@pytest.mark.parametrize("path", WANDB, ids=lambda path: path.stem)
def test_wandb_gives_a_command_that_fit_understands(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    sweep = yaml.safe_load(path.read_text())
    env, python, *command = wandb_command(sweep)
    assert (env, python, command[:3]) == ("/usr/bin/env", "python", ["-m", "training", "fit"])
    assert all(
        "." in key and not isinstance(how.get("parameters"), dict) for key, how in sweep["parameters"].items()
    )
    text = resolved(capsys, "fit", *command[3:])
    assert "wandb: online" in text


def test_wandbs_grid_is_the_sweeps() -> None:
    theirs = yaml.safe_load((ROOT / "configs" / "sweeps" / "lei.wandb.yaml").read_text())
    ours = read_sweep(ROOT / "configs" / "sweeps" / "lei_grid.yaml")
    assert {key: how["values"] for key, how in theirs["parameters"].items()} == ours.space
    assert theirs["metric"]["name"] == ours.metric
