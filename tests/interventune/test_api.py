"""The Python interface and the command `interventune`: the tour, examples, mistakes."""

import doctest
import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest

import interventune
from interventune import api
from interventune.command import main
from interventune.evaluation.commands import Command
from interventune.evaluation.report import Evaluation
from interventune.evaluation.results import Results
from interventune.storage.command_line import Count

TOUR = Path(__file__).resolve().parents[2] / "docs" / "tour.ipynb"
FEWER = '"--data.limit_train_qa=200", "--data.limit_train_groups=60"'
SMALLER = {
    r"STEPS = \d+": "STEPS = 10",
    '"--data.train_qa': f'{FEWER}, "--data.train_qa',
    "stories:heldout": "stories:unseen_attributes",
}
"""What the tour is run with instead."""


def test_the_tour_and_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for cell in json.loads(TOUR.read_text())["cells"]:
        if cell["cell_type"] == "code":
            source = "".join(cell["source"])
            for pattern, smaller in SMALLER.items():
                source = re.sub(pattern, smaller, source)
            exec(compile(source, TOUR, "exec"), names)
    assert names["axes"].has_data()
    plt.close(names["figure"])
    checkpoint = tmp_path / "runs" / "tour" / "version_0" / "checkpoints" / "last.ckpt"
    result = doctest.testmod(api, extraglobs={"checkpoint": str(checkpoint)})
    assert result.failed == 0 < result.attempted


def test_evaluate_checks_flags_and_records_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def length(*, checkpoint: list[str], calibrated: bool = True, limit: Count = 1) -> Evaluation:
        return Evaluation("Length", Results((), "questions"), (), {"seen": [calibrated, limit]})

    monkeypatch.setattr(Command, "function", property(lambda _: length))
    about = interventune.evaluate("bias", checkpoint=["a"], calibrated=False).about
    flags = {"checkpoint": ["a"], "calibrated": False, "limit": 1}
    assert about == {"protocol": "bias", **flags, "seen": [False, 1]}
    good = {"checkpoint": ["a"]}
    for wrong in ({}, {"checkpoint": "a"}, good | {"limmit": 1}, good | {"limit": 0}):
        with pytest.raises(ValueError, match=list(wrong)[-1] if wrong else "checkpoint"):
            interventune.evaluate("bias", **wrong)


MISTYPED = {
    "evalute": "evaluate?",
    "train fitt": "fit?",
    "train fit -c squda": "squad",
    "data perturbb": "perturb?",
    "evaluate fathfulness": "faithfulness?",
    "evaluate shift --checkpoint a --data b --outptu c --output d": "--output?",
    "reproduce sf_coq": "sf_coqa?",
}


def test_mistakes_in_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for line, meant in MISTYPED.items():
        with suppress(SystemExit):  # of argparse
            assert main(line.split()) == 2
        error = capsys.readouterr().err
        assert f"; did you mean {meant}" in error
        assert error.count("\n") == 1
    assert main(["export", str(tmp_path / "no.ckpt"), str(tmp_path / "folder")]) == 2
    assert "no.ckpt" in capsys.readouterr().err
