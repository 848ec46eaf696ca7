"""Group losses in training: which terms a run has, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from data_modules.groups.advice import unadvised, with_advice
from data_modules.records import write_records
from data_modules.stories import groups as story_groups
from tests.support.finished_runs import differences
from tests.training.conftest import SMALL, Commands, curves, logged
from training.cli import main as train
from training.modules.advice import LEIModule

UNWATCHED = ("--data.val_qa={}", "--data.val_groups={}", "--trainer.log_every_n_steps=1")


def fit(
    commands: Commands, *flags: str, steps: int = 1, architecture: str = "roberta", version: str = ""
) -> tuple[Any, Path]:
    """A few steps: the command line, and the run's folder."""
    cache = f"--model.reference_cache={commands.root.parent / 'cache'}"
    wanted = (cache, *UNWATCHED, f"--trainer.max_steps={steps}", f"--run.version={version}", *flags)
    cli = train(commands.of("fit", "lei_few_shot", architecture, *wanted))
    return cli, Path(cli.trainer.loggers[0].log_dir)


def losses(home: Path) -> set[str]:
    return {name.removeprefix("train/loss/") for name in logged(home) if name.startswith("train/loss/")}


def test_the_terms_of_a_run_are_those_of_its_classes(commands: Commands) -> None:
    _, home = fit(commands, "--data.anchor_unadvised=0.25")
    assert losses(home) == {"ethical", "adversarial", "irrelevant", "unadvised", "span", "total"}


def test_groups_that_join_no_loss_are_refused(commands: Commands, tmp_path: Path) -> None:
    write_records(unadvised(islice(story_groups.groups("train"), 6)), path := tmp_path / "bare.json")
    bare = f"--data.train_groups=[{path}]"
    still = SMALL["roberta"].replace("{", "{hidden_dropout_prob: 0.0, attention_probs_dropout_prob: 0.0, ")
    _, home = fit(commands, bare, f"--backbone.config={still}", "--data.encoding.order=question_first")
    assert curves(home, "train/loss/unadvised")[0][1] < 1e-4  # the model that training starts from
    with pytest.raises(
        ValueError, match=r"data\.train_groups: no group .* none; raise .*unadvised_weight above"
    ):
        fit(commands, bare, "--model.loss.unadvised_weight=0")


@pytest.fixture
def domains(tmp_path: Path) -> str:
    """A source of groups of two invented domains with advice about the right or the other one, or none."""
    groups = []
    for i, group in enumerate(unadvised(story_groups.groups("train"))[:12]):
        domain, other = ("towns", "bells")[:: -1 if i % 2 else 1]
        for name in ("ethical", "adversarial", "mismatched_ethical", "mismatched_adversarial"):
            about = other if name.startswith("mismatched") else domain
            text = f"Note that, {about} {'do not matter' if name.endswith('ethical') else 'matter'} here."
            advised = with_advice(group, text, name, f"{name}_{about}-{i}", about)  # type: ignore[arg-type]
            groups.append(replace(advised, domain=domain))
        groups.append(replace(group, domain=domain))
    write_records(groups, path := tmp_path / "domains.json")
    return f"--data.train_groups=[{path}]"


@pytest.mark.parametrize("architecture", ["roberta", "llama"])
def test_terms_of_domains_and_a_resumed_run_are_bit_equal(
    domains: str, architecture: str, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = (domains, "--model.learning_rate=1e-3")
    _, home = fit(commands, *given, steps=6, architecture=architecture, version="whole")
    assert losses(home) == {"ethical", "adversarial", "unadvised", "mismatched", "span", "total"}
    if architecture == "roberta":
        flags = (*given, "--ckpt_path=auto", "--run.save_every_n_steps=1")
        monkeypatch.setattr(LEIModule, "on_train_batch_start", power_cut)
        with pytest.raises(RuntimeError, match="the power went out"):
            fit(commands, *flags, steps=6, version="cut")
        monkeypatch.undo()
        _, cut = fit(commands, *flags, steps=6, version="cut")
        assert not list(differences(home, cut))


def power_cut(module: LEIModule, batch: Any, batch_idx: int) -> None:
    if module.global_step == 3:
        raise RuntimeError("the power went out")
