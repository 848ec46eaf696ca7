"""The reference pass: anchors, dominance, and a cache that knows what it depends on."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch

from data_modules.schema import Group, Targets
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
    assert [what for what, *_ in scored] == ["reference pass, unadvised"]
    assert torch.equal(first.log_prob_NVSE, again.log_prob_NVSE)
    fit(commands, tmp_path, "--seed_everything=1")  # other weights
    fit(commands, tmp_path, "--data.encoding.max_length=100")  # other rows
    fit(commands, tmp_path, "--model.irrelevant_target=same_advice")
    assert [what for what, *_ in scored[1:]] == ["reference pass, unadvised"] * 3 + [
        "reference pass, advised"
    ]
    assert len(list(tmp_path.glob("*.pt"))) == 4
    assert not list(tmp_path.glob("*.tmp"))


def test_another_checkpoint_may_be_the_reference(commands: Commands, tmp_path: Path) -> None:
    """A second stage keeps what the first one kept; its own start says something else by then."""
    first, _ = fit(commands, tmp_path, "--run.version=first", "--model.learning_rate=1e-2")
    stage = commands.root / "lei_few_shot" / "first" / "checkpoints" / "last.ckpt"
    from_stage = f"--backbone.checkpoint={stage}"
    second, _ = fit(commands, tmp_path, from_stage)
    named, _ = fit(commands, tmp_path, f"--model.reference={stage}")
    assert not torch.allclose(first.log_prob_NVSE, second.log_prob_NVSE)
    assert torch.equal(named.log_prob_NVSE, second.log_prob_NVSE)
    with pytest.raises(ValueError, match="no such checkpoint"):
        fit(commands, tmp_path, "--model.reference=nowhere.ckpt")
    build_tokenizer("roberta", vocabulary()[:-1]).save_pretrained(tmp_path / "words")
    with pytest.raises(ValueError, match=r"model\.reference: .* has another tokenizer"):
        fit(commands, tmp_path, f"--model.reference={stage}", f"--backbone.tokenizer={tmp_path / 'words'}")


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


Cell = tuple[tuple[str, str], str]


def cell(group: Group) -> Cell:
    return group.subjects, group.attribute


def mean_c(groups: list[Group], score_NVS: Any) -> dict[Cell, float]:
    """C of the spec, averaged over the groups of a pair and an attribute."""
    found: dict[Cell, list[float]] = defaultdict(list)
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


def write_lei(path: Path, groups: list[Group], targets: list[Targets]) -> None:
    """Groups in LEI's layout, the first ones with `tomax`."""
    paragraphs: list[dict[str, Any]] = []
    for i, group in enumerate(groups):
        for order in (0, 1):
            qas = []
            for v in (2 * order, 2 * order + 1):
                spans = group.variants[v].candidates[:: -1 if order else 1]
                answers = [{"text": span.text, "answer_start": span.start} for span in spans]
                question = f"{group.variants[v].advice} {group.variants[v].question}"
                tomax = {"tomax": abs(targets[i][v] - order)} if i < len(targets) else {}
                qas.append({"id": "", "question": question, "answers": answers, **tomax})
            context = group.variants[2 * order].context
            paragraph = {"key": group.key, "context": context, "intervention": group.advice_class}
            paragraphs.append({**paragraph, "qas": qas})
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))


def test_dominance_may_be_what_the_file_says(
    commands: Commands, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    groups = [group for group in story_groups.groups("train") if group.advice_class == "adversarial"][:6]
    patterns: list[Targets] = [(0, 1, 0, 1), (1, 0, 1, 0), (1, 1, 0, 0)] * 2
    write_lei(path := tmp_path / "targets.json", groups, patterns)
    found, _ = fit(commands, tmp_path, f"--data.train_groups=[{path}]", "--model.dominance=file")
    assert found.pushed_NV.tolist() == [list(t) for t in patterns]
    assert "dominance: what the file says" in caplog.text
    write_lei(path, groups, patterns[:5])
    for source, message in ((path, "has no tomax"), ("stories:train", "stories:train: cannot be read")):
        with pytest.raises(DataError, match=message):
            fit(commands, tmp_path, f"--data.train_groups=[{source}]", "--model.dominance=file")
