"""Every shipped configuration parses, composed with another, whatever the order. Help answers at once."""

from __future__ import annotations

import subprocess
import sys

import pytest
import yaml

from tests.training.conftest import CONFIGS, resolved
from training.__main__ import main

BACKBONES = sorted(path.stem for path in (CONFIGS / "backbones").glob("*.yaml"))
HEAVY = ("torch", "pytorch_lightning", "transformers", "scipy", "matplotlib", "pandas", "datasets", "wandb")
EXPERIMENTS = sorted(path.stem for path in (CONFIGS / "experiments").glob("*.yaml"))
PAIRS = [
    (EXPERIMENTS[i % len(EXPERIMENTS)], BACKBONES[i % len(BACKBONES)], i % 8 == 0)
    for i in range(max(len(EXPERIMENTS), len(BACKBONES)))
]


@pytest.mark.parametrize(("experiment", "backbone", "turned"), PAIRS)
def test_every_experiment_composes_with_a_backbone(
    experiment: str, backbone: str, turned: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every file of either kind stands in one pair; of some, in either order."""
    files = [CONFIGS / "experiments" / f"{experiment}.yaml", CONFIGS / "backbones" / f"{backbone}.yaml"]
    flags = [f"-c={path}" for path in files]
    text = resolved(capsys, "fit", *flags)
    assert not turned or resolved(capsys, "fit", *flags[::-1]) == text
    architecture = yaml.safe_load(files[1].read_text())["backbone"]["architecture"]
    assert f"architecture: {architecture}" in text
    assert f"name: {experiment}" in text


def test_help_has_the_flags_and_values_of_the_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["fit", "-c", "lei_few_shot", "-c=tiny_roberta", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith("usage: interventune train fit -c EXPERIMENT -c BACKBONE")
    for part in ("--model.learning_rate", "--data.train_qa", "default: stories:train", "default: roberta"):
        assert part in said
    assert "example: interventune train fit" in said


def test_help_imports_nothing_heavy() -> None:
    calls = [("training", []), ("evaluation", []), ("evaluation", ["bias"])]
    code = (
        "import sys; from contextlib import suppress; from importlib import import_module\n"
        f"for room, words in {calls}:\n"
        "    with suppress(SystemExit): import_module(room + '.__main__').main([*words, '--help'])\n"
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=CONFIGS.parent, check=True
    )
    assert done.stdout.count("--help") >= len(calls)
    assert done.stderr.strip() == "[]"
