"""The reference pass: anchors, dominance, and a cache that knows what it depends on."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch

from data_modules.groups_data import GroupsDataModule
from data_modules.schema.groups import Group, Targets
from data_modules.schema.spans import write_records
from data_modules.sources import read_groups
from data_modules.stories import groups as story_groups
from data_modules.stories.questions import vocabulary
from data_modules.stories.word_tokenizer import build_tokenizer
from storage.errors import DataError
from tests.training.conftest import Commands
from training.cli import main as train
from training.modules import advice

Scored = list[tuple[str, list[Group], torch.Tensor]]


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> Scored:
    """What was scored, in order: why, which groups, and the boundary log-probabilities."""
    made: Scored = []
    original = advice.score_groups

    def kept(model: Any, trainer: Any, groups: Any, rows: int, what: str) -> torch.Tensor:
        made.append((what, groups.groups, original(model, trainer, groups, rows, what)))
        return made[-1][2]

    monkeypatch.setattr(advice, "score_groups", kept)
    return made


def fit(commands: Commands, cache: Path, *flags: str) -> Any:
    small = (f"--model.reference_cache={cache}", "--trainer.max_steps=1")
    cli = train(commands.of("fit", "lei_few_shot", "roberta", *small, *flags))
    return cli.model.reference, cli.datamodule.train_set.groups


def test_the_cache_serves_the_same_run_and_no_other(
    commands: Commands, scored: Scored, tmp_path: Path
) -> None:
    first, _ = fit(commands, tmp_path)
    again, _ = fit(commands, tmp_path)
    assert len(scored) == 1
    assert torch.equal(first.log_prob_NVSE, again.log_prob_NVSE)
    fit(commands, tmp_path, "--seed_everything=1")  # other weights
    _, groups = fit(commands, tmp_path, "--data.encoding.max_length=100")  # other rows
    assert len(scored) == len(list(tmp_path.glob("*.pt"))) == 3
    members: dict[str, list[int]] = defaultdict(list)
    for i, group in enumerate(groups.groups):
        members[group.unadvised_key].append(i)
    for first_one, *others in members.values():  # anchors without advice are the same for all advice
        assert all(torch.equal(first.log_prob_NVSE[i], first.log_prob_NVSE[first_one]) for i in others)


def test_another_checkpoint_may_be_the_reference(commands: Commands, tmp_path: Path) -> None:
    """A second stage keeps what the first one kept; its own start says something else by then."""
    first, _ = fit(commands, tmp_path, "--run.version=first", "--model.learning_rate=1e-2")
    stage = commands.root / "lei_few_shot" / "first" / "checkpoints" / "last.ckpt"
    from_stage = f"--backbone.checkpoint={stage}"
    second, _ = fit(commands, tmp_path, from_stage)
    named, _ = fit(commands, tmp_path, f"--model.reference={stage}")
    assert not torch.allclose(first.log_prob_NVSE, second.log_prob_NVSE)
    assert torch.equal(named.log_prob_NVSE, second.log_prob_NVSE)
    with pytest.raises(ValueError, match=r"nowhere\.ckpt"):
        fit(commands, tmp_path, "--model.reference=nowhere.ckpt")
    build_tokenizer("roberta", vocabulary()[:-1]).save_pretrained(tmp_path / "words")
    with pytest.raises(ValueError, match=r"model\.reference: .* has another tokenizer"):
        fit(commands, tmp_path, f"--model.reference={stage}", f"--backbone.tokenizer={tmp_path / 'words'}")


def cell(group: Group) -> Any:
    return group.subjects, group.attribute


def mean_c(groups: list[Group], score_NVS: Any) -> dict[Any, float]:
    """C of the spec, averaged over the groups of a pair and an attribute."""
    found: dict[Any, list[float]] = defaultdict(list)
    for group, s in zip(groups, score_NVS, strict=True):
        b = [(s[0][k] + s[2][k] - s[1][k] - s[3][k]) / 2 for k in (0, 1)]
        found[cell(group)].append(float(b[0] - b[1]) / 2)
    return {key: math.fsum(values) / len(values) for key, values in found.items()}


@pytest.mark.parametrize("limit", [0, 6])
def test_dominance_is_the_sign_of_mean_c_over_all_groups_of_the_sources(
    commands: Commands, scored: Scored, limit: int, tmp_path: Path
) -> None:
    found, groups = fit(commands, tmp_path, f"--data.limit_train_groups={limit}")
    ((_, bare, log_prob),) = scored
    wanted = {cell(group) for group in groups.groups}
    every = {g.unadvised_key for g in read_groups(str(commands.data.groups_train)) if cell(g) in wanted}
    assert len(bare) == len(every)  # each once
    assert {group.key.rstrip("|") for group in bare} == every
    mean = mean_c(bare, log_prob.double().mean(-1).exp().tolist())
    for group, pushed in zip(groups.groups, found.pushed_NV.tolist(), strict=True):
        dominant = int(mean[cell(group)] < 0)
        assert pushed == [dominant, 1 - dominant, dominant, 1 - dominant]


def test_dominance_may_be_what_the_file_says(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = [group for group in story_groups.groups("train") if group.advice_class == "adversarial"][:6]
    write_records(groups, path := tmp_path / "adversarial.json")
    patterns: list[Targets] = [(0, 1, 0, 1), (1, 0, 1, 0), (1, 1, 0, 0)] * 2
    by_file = (f"--data.train_groups=[{path}]", "--model.dominance=file")
    with pytest.raises(DataError, match=r"adversarial\.json: .* has no tomax"):
        fit(commands, tmp_path, *by_file)
    written = dict(zip((group.key for group in groups), patterns, strict=True))
    monkeypatch.setattr(GroupsDataModule, "written_targets", lambda data: written)
    found, _ = fit(commands, tmp_path, *by_file)
    assert found.pushed_NV.tolist() == [list(t) for t in patterns]
