"""Every shipped configuration parses, alone and composed, whatever the order."""

from __future__ import annotations

import pytest

from tests.training.conftest import CONFIGS, resolved

BACKBONES = sorted(path.stem for path in (CONFIGS / "backbones").glob("*.yaml"))
EXPERIMENTS = sorted(path.stem for path in (CONFIGS / "experiments").glob("*.yaml"))


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_composes_with_a_backbone_in_either_order(
    experiment: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [CONFIGS / "experiments" / f"{experiment}.yaml", CONFIGS / "backbones" / "roberta_large.yaml"]
    texts = [
        resolved(capsys, "fit", *(part for path in order for part in ("-c", str(path))))
        for order in (files, files[::-1])
    ]
    assert texts[0] == texts[1]
    assert "FacebookAI/roberta-large" in texts[0]
    assert f"name: {experiment}" in texts[0]


@pytest.mark.parametrize("backbone", BACKBONES)
def test_every_backbone_file_parses(backbone: str, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["-c", str(CONFIGS / "experiments" / "squad.yaml")]
    text = resolved(capsys, "fit", *files, "-c", str(CONFIGS / "backbones" / f"{backbone}.yaml"))
    assert "architecture:" in text
