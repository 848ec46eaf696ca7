"""Two processes validate to the same numbers as one, each example counted once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.conftest import Commands
from training.cli import main as train

REPOSITORY = Path(__file__).resolve().parents[3]


def test_two_gloo_processes_equal_one(commands: Commands, tmp_path: Path) -> None:
    cache = f"--model.reference_cache={tmp_path / 'cache'}"
    watched = [
        "--data.interventions.rationale=answer_sentence",
        "--data.interventions.watch=[os,ts_r]",
        "--data.interventions.shift=[ts,ts_r]",
    ]
    one = commands.of("validate", "lei_few_shot", "roberta", cache, *watched, "--run.version=one")
    train(one)
    two = commands.of("validate", "lei_few_shot", "roberta", cache, *watched, "--run.version=two")
    two += ["--trainer.devices=2", "--trainer.strategy=ddp", "--data.eval_batch_size=64"]  # one batch a set
    done = subprocess.run(
        [sys.executable, "-m", "training", *two],
        cwd=REPOSITORY,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    home = commands.root / "lei_few_shot"
    single, double = (json.loads((home / v / "metrics.json").read_text()) for v in ("one", "two"))
    assert single["val/qa/n"] == double["val/qa/n"] == 13
    assert single["val/qa/ts_r/n"] > 0
    assert single["val/shift/tokens/ts/std"] > 0
    assert single.keys() == double.keys()
    for key, value in single.items():
        assert double[key] == pytest.approx(value, abs=1e-5), key
