"""The demo's commands run, and leave the report that it promises (with two steps of training each)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from evaluation.__main__ import main as evaluate
from tests.evaluation.cells import Cells
from tests.evaluation.conftest import undrawn
from training import demo
from training.cli import main as train


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[str]]]:
    """The commands that the demo gives, each run in this process with two steps of training."""
    given: list[list[str]] = []

    def call(*arguments: str) -> None:
        module, *rest = arguments
        given.append([module, rest[0]])
        if module == "training":
            few = ["--data.limit_train_groups=48", "--data.limit_val_groups=9", "--data.limit_val_qa=16"]
            groups = any("train_groups" in flag for flag in rest)
            train([*rest, "--trainer.max_steps=2", "--data.limit_train_qa=64", *few * groups])
        else:
            assert evaluate([*rest, "--limit", "20"]) == 0

    monkeypatch.chdir(demo.ROOT)
    monkeypatch.setattr(demo, "call", call)
    monkeypatch.setattr(demo, "SPLITS", ("unseen",))
    monkeypatch.setattr(demo, "CACHE", str(tmp_path / "cache"))
    with undrawn():
        yield given


def test_the_half_on_advice_runs_from_reading_to_report(tmp_path: Path, commands: list[list[str]]) -> None:
    assert demo.main(["--half", "lei", "--seed", "3", "--output", str(tmp_path / "demo")]) == 0
    assert [name for _, name in commands] == ["fit", "fit", "bias", "faithfulness"]

    report, answers = (tmp_path / "demo" / "seed_3" / name for name in ("report", "answers"))
    cells, answered = Cells(report), Cells(answers)
    for run in ("before", "after"):
        assert cells.n("mu", **{"checkpoint": run, "data": "unseen", "class": "ethical"}) == 20
        assert answered.n("f1", checkpoint=run, variant="os") == 20
    assert (report / "mu.png").stat().st_size > 0
    assert "before" in (report / "report.md").read_text()

    assert demo.main(["--half", "lei", "--seed", "3", "--output", str(tmp_path / "demo")]) == 2  # is taken


def test_the_half_on_deletion_runs_from_reading_to_histograms(
    tmp_path: Path, commands: list[list[str]]
) -> None:
    assert demo.main(["--half", "ibt", "--seed", "3", "--output", str(tmp_path / "demo")]) == 0
    assert [name for _, name in commands] == ["fit", "fit", "fit", "faithfulness", "shift"]

    folder = tmp_path / "demo" / "seed_3"
    answers = Cells(folder / "faithfulness")
    cosines = Cells(folder / "shift")
    cell = {"variant": "ts_r", "embedding": "cls", "layer": "last"}
    for run in ("ot", "ibt"):
        for variant in ("os", "ts", "ts_r", "ts_r_aug"):
            assert answers.n("em", checkpoint=run, variant=variant) == 20
        assert -1 <= cosines("cosine", checkpoint=run, **cell) <= 1
    assert (folder / "shift" / "histograms.png").stat().st_size > 0


def test_both_halves_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, int]] = []
    halves = {name: lambda seed, folder, name=name: ran.append((name, seed)) for name in demo.HALVES}
    monkeypatch.setattr(demo, "HALVES", halves)
    assert demo.main(["--seed", "0", "2", "--output", str(tmp_path)]) == 0
    assert ran == [("lei", 0), ("ibt", 0), ("lei", 2), ("ibt", 2)]
