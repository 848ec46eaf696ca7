"""The reference pass: anchors, dominance, and a cache that knows what it depends on."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.conftest import Commands
from training.cli import main as train
from training.modules import advice


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was scored, in order."""
    made: list[str] = []
    original = advice.score_groups

    def counted(module: Any, groups: Any, rows: int, what: str) -> torch.Tensor:
        made.append(what)
        return original(module, groups, rows, what)

    monkeypatch.setattr(advice, "score_groups", counted)
    return made


def fit(commands: Commands, cache: Path, *flags: str) -> Any:
    small = (f"--model.reference_cache={cache}", "--trainer.max_steps=1")
    cli = train(commands.of("fit", "lei_few_shot", "roberta", *small, *flags))
    return cli.model.reference, cli.datamodule.train_set.groups


def test_the_cache_serves_the_same_run_and_no_other(
    commands: Commands, calls: list[str], tmp_path: Path
) -> None:
    first, _ = fit(commands, tmp_path)
    again, _ = fit(commands, tmp_path)
    assert calls == ["reference pass"]
    assert torch.equal(first.log_prob_NVSE, again.log_prob_NVSE)
    fit(commands, tmp_path, "--seed_everything=1")  # other weights
    fit(commands, tmp_path, "--data.encoding.order=context_first")  # other rows
    fit(commands, tmp_path, "--model.irrelevant_target=same_advice")
    assert calls[1:] == ["reference pass"] * 3 + ["reference pass, advised"]
    assert len(list(tmp_path.glob("*.pt"))) == 4
    assert not list(tmp_path.glob("*.tmp"))


def test_anchors_are_unadvised_unless_asked_otherwise(commands: Commands, tmp_path: Path) -> None:
    paper, groups = fit(commands, tmp_path)
    same, _ = fit(commands, tmp_path, "--model.irrelevant_target=same_advice")
    by_key = defaultdict(list)
    for i, group in enumerate(groups.groups):
        by_key[group.unadvised_key].append(i)
    assert not torch.allclose(paper.log_prob_NVSE, same.log_prob_NVSE)
    for members in by_key.values():
        for i in members[1:]:
            assert torch.equal(paper.log_prob_NVSE[i], paper.log_prob_NVSE[members[0]])
    assert torch.equal(paper.pushed_NV, same.pushed_NV)


def test_dominance_is_the_sign_of_the_mean_over_templates(commands: Commands, tmp_path: Path) -> None:
    found, groups = fit(commands, tmp_path)
    scores: dict[tuple[Any, str], dict[str, float]] = defaultdict(dict)
    for group, log_prob in zip(groups.groups, found.log_prob_NVSE.double(), strict=True):
        s = log_prob.mean(-1).exp()
        b = [(s[0, k] + s[2, k] - s[1, k] - s[3, k]) / 2 for k in (0, 1)]
        scores[group.subjects, group.attribute][group.template] = float(b[0] - b[1]) / 2
    for group, pushed in zip(groups.groups, found.pushed_NV.tolist(), strict=True):
        dominant = int(sum(scores[group.subjects, group.attribute].values()) < 0)
        assert pushed == [dominant, 1 - dominant, dominant, 1 - dominant]


def test_an_interrupted_pass_leaves_nothing(
    commands: Commands, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"

    def stopped(*_: Any) -> torch.Tensor:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(advice, "score_groups", stopped)
        with pytest.raises((KeyboardInterrupt, SystemExit)):
            fit(commands, cache)
    assert not list(cache.glob("*.pt"))
    assert not list(cache.glob("*.tmp"))
    fit(commands, cache)
    assert len(list(cache.glob("*.pt"))) == 1
