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
from storage.command_line import Count

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


def test_evaluate_checks_flags_and_records_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def length(*, checkpoint: list[str], calibrated: bool = True, limit: Count | None = None) -> Evaluation:
        return Evaluation("Length", Results((), "questions"), (), {"seen": [calibrated, limit]})

    for module in (api, protocol):
        monkeypatch.setattr(module, "resolve_name", lambda name: length)
    about = interventune.evaluate("bias", checkpoint=["a"], calibrated=False).about
    flags = {"checkpoint": ["a"], "calibrated": False, "limit": None}
    assert about == {"protocol": "bias", **flags, "seen": [False, None]}
    given = {"checkpoint": ["a"]}
    for wrong in ({}, {"checkpoint": "a"}, given | {"limmit": 1}, given | {"limit": 0}):
        with pytest.raises(ValueError, match=list(wrong)[-1] if wrong else "checkpoint"):
            interventune.evaluate("bias", **wrong)
