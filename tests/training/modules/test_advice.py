"""Group losses in training: a run's terms, its selection score, and its cached reference pass."""

import math
from collections import defaultdict
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from interventune.data_modules.encoding.tokenizers import build_tokenizer
from interventune.data_modules.schema.groups import Group, unadvised
from interventune.data_modules.schema.questions import write_records
from interventune.data_modules.sources import read_groups
from interventune.data_modules.stories import groups as story_groups
from interventune.data_modules.stories.questions import vocabulary
from interventune.training.cli import main as train
from interventune.training.modules import advice
from tests.training.conftest import Commands, Patch, curves, lei, metrics_of, small_config

UNWATCHED = "--data.val_qa={} --data.val_groups={} --trainer.log_every_n_steps=1"
Scored = list[tuple[list[Group], torch.Tensor]]


def fit(commands: Commands, *flags: str, steps: int = 1) -> Path:
    """The folder of a run of a few steps."""
    few = f"{UNWATCHED} --trainer.max_steps={steps}"
    return lei(commands, "", few, *flags, architecture="roberta")


def losses(home: Path) -> set[str]:
    names = set(pd.read_csv(home / "metrics.csv")["metric"])
    return {name.removeprefix("train/loss/") for name in names if name.startswith("train/loss/")}


def test_the_terms_of_a_run_are_those_of_its_classes(commands: Commands, tmp_path: Path) -> None:
    home = fit(commands, "--data.anchor_unadvised=0.25")
    assert losses(home) == {"ethical", "adversarial", "irrelevant", "unadvised", "span", "total"}
    bare = tmp_path / "bare.json"
    write_records(unadvised(islice(story_groups.groups("train"), 6)), bare)
    still = small_config("roberta", hidden_dropout_prob=0, attention_probs_dropout_prob=0)
    first = "--data.encoding.order=question_first"
    home = fit(commands, f"--data.train_groups=[{bare}]", still, first)
    assert losses(home) == {"unadvised", "span", "total"}
    assert curves(home, "train/loss/unadvised")[0][1] < 1e-4  # the model that training starts from


def test_the_terms_of_domains(commands: Commands) -> None:
    """The vocabulary of the tiny model knows few of their words."""
    source = "--data.train_groups=['domains:all?number=2&groups=60']"
    small = "--data.encoding.max_length=160 --trainer.max_epochs=1"
    home = fit(commands, source, small, steps=12)
    kinds = {"ethical", "adversarial", "irrelevant", "unadvised"}
    assert losses(home) == kinds | {"span", "total"}


def test_the_selection_score_needs_both_classes(commands: Commands, tmp_path: Path) -> None:
    write_records(unadvised(story_groups.groups("unseen")), plain := tmp_path / "plain.json")
    sets = f"--data.val_groups={{main: {commands.data.groups_dev}, plain: '{plain}'}}"
    found = metrics_of(commands.run("validate", "lei_zero_shot", "roberta", sets))
    mu = {name: found[f"val/bias/{name}/mu"] for name in ("ethical", "adversarial")}
    assert found["val/bias/selection"] == pytest.approx((1 - mu["adversarial"]) + mu["ethical"])
    assert "val/bias/plain/none/mu" in found
    assert "val/bias/plain/selection" not in found


@pytest.fixture
def scored(monkeypatch: Patch) -> Scored:
    """What was scored, in order: which groups, and the boundary log-probabilities."""
    records: Scored = []
    original = advice.LEIModule.scored_by

    def record(module: Any, model: Any, groups: Any) -> torch.Tensor:
        records.append((groups.groups, original(module, model, groups)))
        return records[-1][1]

    monkeypatch.setattr(advice.LEIModule, "scored_by", record)
    return records


def reference_of(commands: Commands, cache: Path, *flags: str) -> Any:
    small = f"--model.reference_cache={cache} --trainer.max_steps=1"
    trainer: Any = train(commands.of("fit", "lei_few_shot", "roberta", small, *flags))
    return trainer.lightning_module.reference, trainer.datamodule.train_set.groups


def test_the_cache_serves_equal_runs(commands: Commands, scored: Scored, tmp_path: Path) -> None:
    first, _ = reference_of(commands, tmp_path)
    again, _ = reference_of(commands, tmp_path)
    assert len(scored) == 1
    assert torch.equal(first.log_prob_NVSE, again.log_prob_NVSE)
    reference_of(commands, tmp_path, "--seed_everything=1")  # other weights
    _, groups = reference_of(commands, tmp_path, "--data.encoding.max_length=100")  # other rows
    assert len(scored) == len(list(tmp_path.glob("*.pt"))) == 3
    members: dict[str, list[int]] = defaultdict(list)
    for i, group in enumerate(groups.groups):
        members[group.unadvised_key].append(i)
    for rows in members.values():  # anchors without advice are the same for all advice
        anchors = first.log_prob_NVSE[rows]
        assert torch.equal(anchors, anchors[:1].expand_as(anchors))


def test_another_checkpoint_may_be_the_reference(commands: Commands, tmp_path: Path) -> None:
    """A second stage keeps what the first one kept; its own start says something else by then."""
    first, _ = reference_of(commands, tmp_path, "--run.version=first", "--model.learning_rate=1e-2")
    stage = commands.root / "lei_few_shot" / "first" / "checkpoints" / "last.ckpt"
    from_stage = f"--backbone.checkpoint={stage}"
    second, _ = reference_of(commands, tmp_path, from_stage)
    named, _ = reference_of(commands, tmp_path, f"--model.reference={stage}")
    assert not torch.allclose(first.log_prob_NVSE, second.log_prob_NVSE)
    assert torch.equal(named.log_prob_NVSE, second.log_prob_NVSE)
    with pytest.raises(ValueError, match=r"nowhere\.ckpt"):
        reference_of(commands, tmp_path, "--model.reference=nowhere.ckpt")
    build_tokenizer("roberta", vocabulary()[:-1]).save_pretrained(tmp_path / "words")
    words = f"--model.reference={stage} --backbone.tokenizer={tmp_path / 'words'}"
    with pytest.raises(ValueError, match=r"model\.reference: .* has another tokenizer"):
        reference_of(commands, tmp_path, words)


def cell(group: Group) -> Any:
    return group.subjects, group.attribute


def mean_c(groups: list[Group], score_NVS: Any) -> dict[Any, float]:
    """C (Li et al. 2020, equation 6), averaged over the groups of a pair and an attribute."""
    found: dict[Any, list[float]] = defaultdict(list)
    for group, s in zip(groups, score_NVS, strict=True):
        b = [(s[0][k] + s[2][k] - s[1][k] - s[3][k]) / 2 for k in (0, 1)]
        found[cell(group)].append(float(b[0] - b[1]) / 2)
    return {key: math.fsum(values) / len(values) for key, values in found.items()}


@pytest.mark.parametrize("limit", [0, 6])
def test_dominance_is_the_sign_of_mean_c_over_all_groups_of_the_sources(
    commands: Commands, scored: Scored, limit: int, tmp_path: Path
) -> None:
    found, groups = reference_of(commands, tmp_path, f"--data.limit_train_groups={limit}")
    ((bare, log_prob),) = scored
    cells = {cell(group) for group in groups.groups}
    sources = read_groups(str(commands.data.groups_train))
    every = {group.unadvised_key for group in sources if cell(group) in cells}
    assert len(bare) == len(every)  # each once
    assert {group.key.rstrip("|") for group in bare} == every
    mean = mean_c(bare, log_prob.double().mean(-1).exp().tolist())
    for group, pushed in zip(groups.groups, found.pushed_NV.tolist(), strict=True):
        dominant = int(mean[cell(group)] < 0)
        assert pushed == [dominant, 1 - dominant, dominant, 1 - dominant]
