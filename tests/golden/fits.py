"""Loss curves of short trainings, and a small sweep with its selection."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pandas as pd
import yaml

from tests.golden.commands import CONFIGS, ROOT, TINY, Room, curves, environment, validated

STEPS = 20
COMMON = (
    "--seed_everything=1",
    f"--trainer.max_steps={STEPS}",
    f"--trainer.val_check_interval={STEPS}",
    "--trainer.log_every_n_steps=1",
)
GROUPS = (
    "--trainer.max_epochs=1",
    "--data.encoding={max_length: 96}",
    "--data.limit_train_groups=180",
    "--data.limit_train_qa=200",
    "--data.limit_val_groups=8",
    "--data.limit_val_qa=24",
)
CONVERSATIONS = (
    "--data.qa_batch_size=8",
    "--data.limit_train_qa=90",
    "--data.limit_val_qa=12",
)
CHOICES = (
    "--trainer.max_epochs=1",
    "--data.train_choices=[stories:choices_train]",
    "--data.val_choices={main: stories:choices_dev}",
    "--data.batch_size=4",
    "--data.limit_train=80",
    "--data.limit_val=24",
    "--model.learning_rate=1e-3",
)
PLANTED = (*GROUPS, "--data.random_advice_copies=2", "--model.learning_rate=1e-3", "--model.planted_seed=0")
CURVES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "curve_lei_few_shot": ("lei_few_shot", "roberta", (*GROUPS, "--model.learning_rate=1e-3")),
    "curve_lei_planted": ("lei_planted", "roberta", PLANTED),
    "curve_stories_ibt": ("stories_ibt", "bert", CONVERSATIONS),
    "curve_stories_ibt_xlnet": ("stories_ibt", "xlnet", CONVERSATIONS),
    "curve_multiple_choice": ("multiple_choice", "roberta", CHOICES),
}
"""Name: experiment, backbone, flags."""


def curve(name: str, room: Room) -> dict[str, Any]:
    """Every loss of every step, and what the validation at the end says."""
    experiment, backbone, flags = CURVES[name]
    if experiment == "lei_few_shot":
        flags = (*flags, f"--model.reference_cache={room.root / 'reference'}")
    run, arguments = room.fit(experiment, backbone, *COMMON, *flags, run=name)
    return {"arguments": arguments, "curves": curves(run), "validated": validated(run)}


def sweep(room: Room) -> dict[str, Any]:
    """Four fits of two steps on a grid, and the better two of them tested."""
    study, file = room.root / "study", room.root / "sweep.yaml"
    groups, questions = room.data / "few_lei.json", room.data / "few_squad.json"
    content = {
        "study": "grid",
        "metric": "val/bias/selection",
        "direction": "minimize",
        "configs": [f"{CONFIGS}/experiments/lei_few_shot.yaml", f"{CONFIGS}/backbones/tiny_roberta.yaml"],
        "flags": [
            f"--backbone.config={{{TINY['roberta']}, initializer_range: 0.3}}",
            f"--model.reference_cache={room.root / 'reference'}",
            f"--data.cache={room.root / 'prepared'}",
            *("--run.wandb=off", "--trainer.accelerator=cpu", "--trainer.precision=32-true"),
            *("--trainer.enable_progress_bar=false", "--trainer.max_steps=2"),
            *("--backbone.reading_init=false", "--trainer.val_check_interval=2"),
            f"--data.train_groups=[{groups}]",
            f"--data.train_qa={questions}",
            f"--data.val_groups={{main: {groups}}}",
            f"--data.val_qa={{main: {questions}}}",
        ],
        "space": {"model.learning_rate": [1.0e-3, 1.0e-2], "data.groups_per_class": [1, 3]},
    }
    file.write_text(yaml.safe_dump(content))
    tests = (f"--data.test_groups.few={groups}", f"--data.test_qa.questions={questions}")
    for arguments in (
        ("sweep", str(file), "--output", str(study), "--workers", "2"),
        ("select", "--study", str(study), "--top", "2", *tests),
    ):
        command = (sys.executable, "-m", "training", *arguments)
        done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    points = {}
    for run in sorted((study / "points").glob("*/run")):
        points[run.parent.name] = {"validated": validated(run)}
    models = pd.read_csv(study / "selection" / "models.csv")
    selected = pd.read_csv(study / "selection" / "selection.csv").drop(columns="n")
    selected["values"] = [list(map(float, str(values).split())) for values in selected["values"]]
    return {
        "points": points,
        "models": dict(zip(models["point"], models["val/bias/selection"], strict=True)),
        "selected": {
            name: rows.set_index("metric").drop(columns="test_set").to_dict("index")
            for name, rows in selected.groupby("test_set")
        },
    }


GOLDENS: dict[str, Callable[[Room], dict[str, Any]]] = {
    **{name: functools.partial(curve, name) for name in CURVES},
    "sweep": sweep,
}
