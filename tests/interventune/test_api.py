"""The Python interface: the tour runs from end to end, its examples hold, and mistakes are errors."""

from __future__ import annotations

import doctest
import json
import re
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest

import interventune
from evaluation import protocol
from evaluation.report import Evaluation
from evaluation.results import Results
from interventune import api

TOUR = Path(__file__).resolve().parents[2] / "docs" / "tour.ipynb"
SMALLER = (
    (r"STEPS = \d+", "STEPS = 10"),
    ('"--data.train_qa', '"--data.limit_train_qa=200", "--data.limit_train_groups=60", "--data.train_qa'),
    ("stories:heldout", "stories:unseen_attributes"),
)
"""What the tour is run with instead."""


def test_the_tour_runs_and_its_checkpoint_serves_the_examples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for cell in json.loads(TOUR.read_text())["cells"]:
        if cell["cell_type"] == "code":
            source = "".join(cell["source"])
            for pattern, smaller in SMALLER:
                source = re.sub(pattern, smaller, source)
            exec(compile(source, TOUR, "exec"), names)
    assert names["axes"].has_data()
    plt.close(names["figure"])
    checkpoint = tmp_path / "runs" / "tour" / "version_0" / "checkpoints" / "last.ckpt"
    result = doctest.testmod(api, extraglobs={"checkpoint": str(checkpoint)})
    assert result.failed == 0
    assert result.attempted >= 9


def test_public_names_are_found() -> None:
    assert all(getattr(interventune, name).__doc__ for name in interventune.__all__)
    with pytest.raises(AttributeError):
        _ = interventune.evalute


def test_evaluate_records_flags_and_refuses_what_the_command_refuses(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def length(*, checkpoint: list[str], calibrated: bool = True, limit: int | None = None) -> Evaluation:
        return Evaluation("Length", Results((), "questions"), (), {"seen": [calibrated, limit]})

    monkeypatch.setattr(api, "load_function", lambda row: length)
    monkeypatch.setattr(protocol, "load_function", lambda row: length)
    about = interventune.evaluate("bias", checkpoint=[tmp_path], calibrated=False, limit=None).about
    paths = {"checkpoint": [str(tmp_path)], "calibrated": False, "limit": None}
    assert about == {"protocol": "bias", **paths, "seen": [False, None]}
    for flags, message in (
        ({}, "checkpoint"),
        ({"checkpoint": "a"}, "checkpoint"),
        ({"checkpoint": ["a"], "limmit": 1}, "limmit"),
    ):
        with pytest.raises(ValueError, match=message):
            interventune.evaluate("bias", **flags)
    with pytest.raises(ValueError, match="biass"):
        interventune.evaluate("biass")
