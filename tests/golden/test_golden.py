"""What may move only with a reason in the commit message: losses of short trainings, and written files.

python -m tests.golden.test_golden    records anew what changed on purpose
"""

from __future__ import annotations

import csv
import functools
import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
import torch

from data_modules.__main__ import main as data
from data_modules.sources import read_groups
from tests.data_modules.fixtures.tiny_lists import ATTRIBUTES, write_lists
from training.cli import main as train

HERE = Path(__file__).resolve().parent
INPUTS, EXPECTED = HERE / "inputs", HERE / "expected"
"""Invented texts in the public formats; losses by step, and digests of files."""
CONFIGS = HERE.parents[1] / "configs"
NEAR = 0.01
"""Relative. ATen's plain kernels move a loss by 4e-6 in twenty steps; another processor may by more."""

GROUPS = (
    *("--data.encoding={max_length: 96}", "--data.limit_train_groups=180", "--data.limit_train_qa=200"),
    *("--data.limit_val_groups=8", "--data.limit_val_qa=24", "--model.learning_rate=1e-3"),
)
CONVERSATIONS = ("--data.qa_batch_size=8", "--data.limit_train_qa=90", "--data.limit_val_qa=12")
CHOICES = (
    *("--data.train_choices=[stories:choices_train]", "--data.val_choices={main: stories:choices_dev}"),
    *("--data.batch_size=4", "--data.limit_train=80", "--data.limit_val=24", "--model.learning_rate=1e-3"),
)
PLANTED = (*GROUPS, "--data.random_advice_copies=2", "--model.planted_seed=0")
CURVES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "curve_lei_few_shot": ("lei_few_shot", "roberta", GROUPS),
    "curve_lei_planted": ("lei_planted", "roberta", PLANTED),
    "curve_stories_ibt": ("stories_ibt", "bert", CONVERSATIONS),
    "curve_stories_ibt_xlnet": ("stories_ibt", "xlnet", CONVERSATIONS),
    "curve_multiple_choice": ("multiple_choice", "roberta", CHOICES),
}
"""Name: experiment, backbone, flags."""

LISTS = ("--subjects", "subjects", "--templates", "templates", "--attributes", "attributes")
ADVISED = ("lei", *LISTS, "--interventions", "interventions.json")
LEI_SETS: dict[str, tuple[str, ...]] = {
    "one.json": ("lei", *LISTS, "--per-class", "1"),
    "unqover.json": ("unqover", *LISTS),
    "all.json": ADVISED,
    "sample.json": (*ADVISED, "--per-class", "7"),
    "seeded.json": (*ADVISED, "--per-class", "7", "--seed", "3"),
    "train.json": (*ADVISED, "--split", "train"),
    "test.json": (*ADVISED, "--split", "test"),
    "like.json": (*ADVISED, "--like", "sample.json"),
    "disjoint.json": (*ADVISED, "--disjoint-from", "one.json", "--per-class", "5"),
    "specified.json": (*ADVISED, "--specified", "specified.tsv", "--per-class", "2"),
}
SOURCES = {"coqa": "coqa.json", "hotpotqa": "hotpotqa.json", "squad": "squad.json"} | {
    "stories": "stories:mixed_dev"
}
VARIANTS = ("os", "ts", "ts_r", "os_r", "ts_r_aug", "os_r_aug")
LABELLED = ("--input", "labelled.jsonl", "--min-demos", "2", "--recipe", "tasks.yaml")


def curve(name: str, room: Path) -> dict[str, Any]:
    """Every loss of every step."""
    experiment, backbone, flags = CURVES[name]
    if experiment == "lei_few_shot":
        flags = (*flags, f"--model.reference_cache={room / 'reference'}")
    if experiment != "multiple_choice":
        flags = (*flags, f"--data.cache={room / 'prepared'}")
    if experiment != "stories_ibt":
        flags = (*flags, "--trainer.max_epochs=1")
    configs = (f"experiments/{experiment}", f"backbones/tiny_{backbone}")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        train(
            [
                *("fit", *(part for config in configs for part in ("-c", f"{CONFIGS / config}.yaml"))),
                *(f"--run.root={room}", f"--run.name={name}", "--run.version=0", "--run.wandb=off"),
                *("--seed_everything=1", "--data.seed=0", "--trainer.max_steps=20"),
                *("--trainer.val_check_interval=20", "--trainer.log_every_n_steps=1"),
                *("--trainer.accelerator=cpu", "--trainer.precision=32-true"),
                *("--trainer.enable_progress_bar=false", *flags),
            ]
        )
    finally:
        torch.set_num_threads(threads)
    found: dict[str, list[float]] = {}
    with open(room / name / "0" / "metrics.csv", newline="") as file:
        for row in csv.DictReader(file):
            if row["metric"].startswith("train/loss/"):
                found.setdefault(row["metric"], []).append(float(row["value"]))
    return found


def written(commands: dict[str, tuple[str, ...]]) -> dict[str, str]:
    """The digest of each file that commands write here; the name of a file is its command's --output."""
    for name, command in commands.items():
        assert data([*command, "--output", name]) == 0, name
    return {name: hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in commands}


def lei_sets(room: Path) -> dict[str, Any]:
    """Groups of invented word lists, all, sampled and split."""
    write_lists(room)
    names = [line.split("|")[1].strip() for line in ATTRIBUTES.splitlines()[:4]]
    Path("specified.tsv").write_text("".join(f"{name}\tEverybody saw the [subj].\n" for name in names))
    digests = written(LEI_SETS)
    return {name: [sum(1 for _ in read_groups(name)), digest] for name, digest in digests.items()}


def perturbed(room: Path) -> dict[str, Any]:
    """Every variant of every data set."""
    shutil.copytree(INPUTS, room, dirs_exist_ok=True)
    made = {(name, variant): f"{name}_{variant}.jsonl" for name in SOURCES for variant in VARIANTS}
    flags = {
        file: ("perturb", "--input", SOURCES[name], "--variant", variant)
        for (name, variant), file in made.items()
    }
    digests, found = written(flags), {}
    for file, digest in digests.items():
        summary = json.loads(Path(file.replace(".jsonl", ".summary.json")).read_text())
        found[file] = [summary["kept"], summary["rejected"], digest]
    return found


def feature_bias(room: Path) -> dict[str, Any]:
    """Two tasks, and rows to train on."""
    shutil.copytree(INPUTS, room, dirs_exist_ok=True)
    assert data(["feature-bias", *LABELLED, "--task", "uppercase", "pattern", "--output", "."]) == 0
    rows = ("feature-bias-rows", "--task", "uppercase.json", "--dev-output", "dev_rows.jsonl")
    files = ("uppercase.json", "pattern.json", "dev_rows.jsonl")
    found = written({"rows.jsonl": rows})
    return found | {name: hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in files}


GOLDENS: dict[str, Callable[[Path], dict[str, Any]]] = {
    **{name: functools.partial(curve, name) for name in CURVES},
    "lei_sets": lei_sets,
    "perturbed": perturbed,
    "feature_bias": feature_bias,
}


@pytest.mark.parametrize("name", GOLDENS)
def test_golden(name: str, tmp_path: Path) -> None:
    expected = json.loads((EXPECTED / f"{name}.json").read_text())
    with chdir(tmp_path):
        found = GOLDENS[name](tmp_path)
    if name in CURVES:
        assert found.keys() == expected.keys()
        for loss, values in expected.items():
            assert found[loss] == pytest.approx(values, rel=NEAR, abs=NEAR / 10), loss
    else:
        assert found == expected


if __name__ == "__main__":
    for golden, make in GOLDENS.items():
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            content = json.dumps(make(Path(folder)), indent=0, sort_keys=True)
        (EXPECTED / f"{golden}.json").write_text(content + "\n")
