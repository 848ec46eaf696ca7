"""A real sweep from file to selection, through the ordinary commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.training.conftest import CONFIGS, SMALL, SmallData
from training.sweep.command import main as sweep
from training.sweep.selection import main as select


def test_two_real_trials_and_the_better_one_tested(tmp_path: Path, small_data: SmallData) -> None:
    file, study = tmp_path / "sweep.yaml", tmp_path / "study"
    content = {
        "study": "small",
        "metric": "val/bias/selection",
        "direction": "minimize",
        "configs": [
            str(CONFIGS / "experiments" / "lei_few_shot.yaml"),
            str(CONFIGS / "backbones" / "tiny_roberta.yaml"),
        ],
        "flags": [
            f"--backbone.config={SMALL['roberta']}",
            f"--model.reference_cache={tmp_path / 'cache'}",
            f"--data.cache={tmp_path / 'data'}",
            *("--run.wandb=off", "--trainer.max_steps=2", "--data.limit_train_groups=9"),
            *("--trainer.accelerator=cpu", "--trainer.precision=32-true"),
            *small_data.flags("lei_few_shot"),
        ],
        "space": {"model.learning_rate": [1.0e-4, 1.0e-2]},
    }
    file.write_text(yaml.safe_dump(content))
    assert sweep([str(file), "--output", str(study), "--workers", "2", "--data.seed=1"]) == 0
    runs = [study / "trials" / f"trial_{i:04d}" / "0" for i in range(2)]
    for run, rate in zip(runs, (1e-4, 1e-2), strict=True):
        config = yaml.safe_load((run / "config.yaml").read_text())
        assert config["model"]["init_args"]["learning_rate"] == rate
        assert config["data"]["init_args"]["seed"] == 1
    scores = [json.loads((run / "metrics.json").read_text())["val/bias/selection"] for run in runs]

    tests = ["--test", f"same={small_data.groups_dev}", f"questions={small_data.qa_dev}"]
    assert select(["--study", str(study), "--metric", "val/bias/selection", "--top", "1", *tests]) == 0
    found = json.loads((study / "selection" / "selection.json").read_text())["selections"][0]
    assert found["models"][0]["score"] == min(scores)
    best = runs[scores.index(min(scores))]
    assert found["models"][0]["run"] == str(best)
    # Tested on the sets that it was validated on, a model reaches what it reached there.
    validated = json.loads((best / "metrics.json").read_text())
    assert found["results"]["same"]["bias/ethical/mu"]["mean"] == pytest.approx(
        validated["val/bias/ethical/mu"]
    )
    assert found["results"]["questions"]["qa/f1"]["mean"] == pytest.approx(validated["val/qa/f1"])
