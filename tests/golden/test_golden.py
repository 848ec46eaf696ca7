"""Losses of a training and files, recorded again by `python -m tests.golden.test_golden`."""

import csv
import hashlib
import json
import shlex
import tempfile
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
import torch

from interventune.data_modules.__main__ import main as data
from interventune.data_modules.sources import read_groups
from interventune.training.cli import main as train
from tests.data_modules.fixtures.tiny_lists import write_lists

HERE = Path(__file__).resolve().parent
EXPECTED = HERE / "expected"
"""Losses by step, and digests of files."""
NEAR = 0.01
"""Relative. ATen's plain kernels move a loss by 4e-6 in twenty steps; other processors by more."""

TRAINING = shlex.split("""
    --data.limit_train_groups=180 --data.limit_train_qa=200 --data.limit_val_groups=8
    --data.limit_val_qa=24 --data.seed=0 --data.encoding.max_length=96 --seed_everything=1
    --model.learning_rate=1e-3 --trainer.max_epochs=1 --trainer.max_steps=20
    --trainer.val_check_interval=20 --trainer.log_every_n_steps=1 --trainer.accelerator=cpu
    --trainer.precision=32-true --trainer.enable_progress_bar=false --run.wandb=off
""")
"""Twenty steps of LEI's losses."""

LISTS = "--subjects subjects --templates templates --attributes attributes"
ADVISED = f"lei {LISTS} --interventions interventions.json"
LEI_SETS = {
    "one.json": f"lei {LISTS} --per-class 1",
    "unqover.json": f"unqover {LISTS}",
    "all.json": ADVISED,
    "sample.json": f"{ADVISED} --per-class 7",
    "seeded.json": f"{ADVISED} --per-class 7 --seed 3",
    "like.json": f"{ADVISED} --like sample.json",
    "disjoint.json": f"{ADVISED} --disjoint-from one.json --per-class 5",
}


def curve(room: Path) -> dict[str, Any]:
    """Every loss of every step."""
    folders = {"run.root": "runs", "model.reference_cache": "reference", "data.cache": "prepared"}
    flags = [f"--{flag}={room / name}" for flag, name in folders.items()]
    flags += ["--run.name=lei", "--run.version=0", *TRAINING]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        train(["fit", "-c", "lei_few_shot", "-c", "tiny_roberta", *flags])
    finally:
        torch.set_num_threads(threads)
    losses: dict[str, list[float]] = {}
    with open(room / "runs" / "lei" / "0" / "metrics.csv", newline="") as file:
        for row in csv.DictReader(file):
            if row["metric"].startswith("train/loss/"):
                losses.setdefault(row["metric"], []).append(float(row["value"]))
    return losses


def lei_sets(room: Path) -> dict[str, Any]:
    """Groups of invented word lists, all and sampled."""
    write_lists(room)
    for name, command in LEI_SETS.items():
        assert data([*command.split(), "--output", name]) == 0, name
    digests = {name: hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in LEI_SETS}
    return {name: [sum(1 for _ in read_groups(name)), digest] for name, digest in digests.items()}


GOLDENS = {"curve_lei_few_shot": curve, "lei_sets": lei_sets}


@pytest.mark.parametrize("name", GOLDENS)
def test_golden(name: str, tmp_path: Path) -> None:
    expected = json.loads((EXPECTED / f"{name}.json").read_text())
    with chdir(tmp_path):
        content = GOLDENS[name](tmp_path)
    if GOLDENS[name] is curve:
        assert content.keys() == expected.keys()
        for loss, values in expected.items():
            assert content[loss] == pytest.approx(values, rel=NEAR, abs=NEAR / 10), loss
    else:
        assert content == expected


if __name__ == "__main__":
    for golden, make in GOLDENS.items():
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            content = json.dumps(make(Path(folder)), indent=0, sort_keys=True)
        (EXPECTED / f"{golden}.json").write_text(content + "\n")
