"""Every shipped configuration parses, alone and composed, whatever the order."""

from __future__ import annotations

import pytest
import yaml

from tests.training.conftest import CONFIGS, resolved

BACKBONES = sorted(path.stem for path in (CONFIGS / "backbones").glob("*.yaml"))
EXPERIMENTS = sorted(path.stem for path in (CONFIGS / "experiments").glob("*.yaml"))


PAIRS = [
    (EXPERIMENTS[i % len(EXPERIMENTS)], BACKBONES[i % len(BACKBONES)])
    for i in range(max(len(EXPERIMENTS), len(BACKBONES)))
]


@pytest.mark.parametrize(("experiment", "backbone"), PAIRS)
def test_every_experiment_composes_with_a_backbone_in_either_order(
    experiment: str, backbone: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every file of either kind stands in one pair."""
    files = [CONFIGS / "experiments" / f"{experiment}.yaml", CONFIGS / "backbones" / f"{backbone}.yaml"]
    texts = [
        resolved(capsys, "fit", *(part for path in order for part in ("-c", str(path))))
        for order in (files, files[::-1])
    ]
    assert texts[0] == texts[1]
    architecture = yaml.safe_load(files[1].read_text())["backbone"]["architecture"]
    assert f"architecture: {architecture}" in texts[0]
    assert f"name: {experiment}" in texts[0]
