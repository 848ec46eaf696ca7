"""Shipped configurations compose in any order; help is fast; launch scripts on a fake cluster."""

import os
import subprocess
import sys
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
import yaml

from interventune.training.__main__ import main
from tests.training.conftest import CONFIGS, Capture, resolved

BACKBONES = sorted(path.stem for path in (CONFIGS / "backbones").glob("*.yaml"))
HEAVY = ("torch", "pytorch_lightning", "transformers", "scipy", "matplotlib", "pandas")
HEAVY += ("datasets", "wandb")
EXPERIMENTS = sorted(path.stem for path in (CONFIGS / "experiments").glob("*.yaml"))
LONGER = zip_longest(EXPERIMENTS, BACKBONES)
PAIRS = [(e or EXPERIMENTS[-1], b or BACKBONES[-1], i % 8 == 0) for i, (e, b) in enumerate(LONGER)]
FILES = ("-c", f"{CONFIGS}/experiments/squad.yaml", "-c", f"{CONFIGS}/backbones/bert_base.yaml")


@pytest.mark.parametrize(("experiment", "backbone", "turned"), PAIRS)
def test_experiments_compose(experiment: str, backbone: str, turned: bool, capsys: Capture) -> None:
    """Every file of either kind stands in one pair; of some, in either order."""
    kinds = {"experiments": experiment, "backbones": backbone}
    files = [CONFIGS / kind / f"{name}.yaml" for kind, name in kinds.items()]
    flags = [f"-c={path}" for path in files]
    text = resolved(capsys, "fit", *flags)
    assert not turned or resolved(capsys, "fit", *flags[::-1]) == text
    architecture = yaml.safe_load(files[1].read_text())["backbone"]["architecture"]
    assert f"architecture: {architecture}" in text
    assert f"name: {experiment}" in text


def test_help_has_the_flags_and_values_of_the_experiment(capsys: Capture) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["fit", "-c", "lei_few_shot", "-c=tiny_roberta", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith("usage: interventune train fit -c EXPERIMENT -c BACKBONE")
    for part in ("--model.learning_rate", "--data.train_qa", "example: interventune train fit"):
        assert part in text
    assert "default: stories:train" in text
    assert "default: roberta" in text


def test_help_imports_nothing_heavy() -> None:
    calls = [("training", []), ("evaluation", []), ("evaluation", ["bias"])]
    code = (
        "import sys; from contextlib import suppress; from importlib import import_module\n"
        f"for room, words in {calls}:\n"
        "    with suppress(SystemExit): import_module(room + '.__main__').main([*words, "
        "'--help'])\n"
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    command: Any = {"args": [sys.executable, "-c", code], "cwd": CONFIGS.parent}
    done = subprocess.run(**command, capture_output=True, text=True, check=True)
    assert done.stdout.count("--help") >= len(calls)
    assert "\n    report " not in done.stdout  # no protocol
    assert done.stderr.strip() == "[]"


def stand_in(folder: Path, name: str, script: str) -> None:
    """A program of that name in `folder/bin`."""
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)


def cluster(folder: Path, code: int) -> None:
    """A SLURM whose steps print their arguments and end with `code`."""
    stand_in(folder, "srun", f"printf '%s\\n' \"$@\"; exit {code}")
    stand_in(folder, "scontrol", 'echo "$@" > requeued')
    activate = folder / ".venv" / "bin" / "activate"
    activate.parent.mkdir(parents=True)
    activate.touch()


def launch(folder: Path, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(CONFIGS / "launch" / script), *FILES]
    paths = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", **environment}
    return subprocess.run(command, cwd=folder, env=paths, capture_output=True, text=True)


def parses(said: str, capsys: Capture) -> str:
    """The configuration of the command line after `-m`, with one argument a line."""
    arguments = said.splitlines()
    arguments = arguments[arguments.index("-m") + 1 :]
    assert arguments[:2] == ["interventune.training", "fit"]
    return resolved(capsys, *arguments[1:])


def test_torchrun_starts_the_ordinary_command(tmp_path: Path, capsys: Capture) -> None:
    stand_in(tmp_path, "torchrun", "printf '%s\\n' \"$@\"")
    stand_in(tmp_path, "nvidia-smi", "echo GPU 0; echo GPU 1")
    done = launch(tmp_path, "torchrun.sh", HEAD="node-1", NODES="3")
    assert done.returncode == 0, done.stderr
    assert {"--rdzv-endpoint=node-1:29500", "--nproc-per-node=2"} <= {*done.stdout.splitlines()}
    config = parses(done.stdout, capsys)
    for line in ("num_nodes: 3", "devices: '2'", "ckpt_path: auto"):
        assert line in config


@pytest.mark.parametrize(("code", "again"), [(143, True), (0, False)])
def test_slurm_queues_again(code: int, again: bool, tmp_path: Path, capsys: Capture) -> None:
    cluster(tmp_path, code)
    job = {"SLURM_JOB_ID": "77", "SLURM_NNODES": "2", "SLURM_NTASKS_PER_NODE": "4"}
    done = launch(tmp_path, "slurm.sbatch", **job)
    assert done.returncode == code, done.stderr
    requeued = tmp_path / "requeued"
    assert (requeued.read_text() if requeued.exists() else "") == "requeue 77\n" * again
    config = parses(done.stdout, capsys)
    for line in ("num_nodes: 2", "devices: '4'", "version: job_77", "ckpt_path: auto"):
        assert line in config


def test_a_task_of_a_slurm_array_is_a_worker(tmp_path: Path) -> None:
    cluster(tmp_path, 130)
    done = launch(tmp_path, "sweep.sbatch", SLURM_ARRAY_JOB_ID="77", SLURM_ARRAY_TASK_ID="2")
    assert done.returncode == 130, done.stderr
    assert (tmp_path / "requeued").read_text() == "requeue 77_2\n"
    assert done.stdout.splitlines() == ["python", "-m", "interventune.training", "sweep", *FILES]
