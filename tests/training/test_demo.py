"""The demo's commands run, and leave the report that it promises (with two steps of training each)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evaluation.__main__ import main as evaluate
from training import demo
from training.cli import main as train


def test_the_demo_runs_from_reading_to_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[str] = []

    def call(*arguments: str) -> None:
        module, *rest = arguments
        commands.append(module)
        if module == "training":
            train([*rest, "--trainer.max_steps=2", f"--data.limit_train_qa={64}"])
        else:
            assert evaluate(rest) == 0

    monkeypatch.chdir(demo.ROOT)
    monkeypatch.setattr(demo, "call", call)
    monkeypatch.setattr(demo, "SPLITS", ("unseen",))
    monkeypatch.setattr(demo, "CACHE", str(tmp_path / "cache"))
    assert demo.main(["--seed", "3", "--output", str(tmp_path / "demo")]) == 0
    assert commands == ["training", "training", "evaluation"]

    report = tmp_path / "demo" / "seed_3" / "report"
    metrics = json.loads((report / "report.json").read_text())
    for run in ("before", "after"):
        assert metrics[f"{run}/ethical/n"] == 72
        assert metrics[f"{run}/qa/n"] == 300
    assert (report / "mu.png").stat().st_size > 0
    assert "before" in (report / "report.md").read_text()

    with pytest.raises(SystemExit, match="another demo"):
        demo.main(["--seed", "3", "--output", str(tmp_path / "demo")])
