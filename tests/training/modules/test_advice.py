"""Group losses in training: which terms a run has, and what it refuses."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from data_modules.groups.advice import unadvised
from data_modules.groups.lei import write_lei
from data_modules.stories import groups as story_groups
from tests.training.conftest import SMALL, Commands, curves
from training.cli import main as train

UNWATCHED = ("--data.val_qa={}", "--data.val_groups={}", "--trainer.log_every_n_steps=1")


def fit(
    commands: Commands, *flags: str, experiment: str = "lei_few_shot", steps: int = 1
) -> tuple[Any, Path]:
    """A few steps: the command line, and the run's folder."""
    cache = f"--model.reference_cache={commands.root.parent / 'cache'}"
    cli = train(
        commands.of("fit", experiment, "roberta", cache, *UNWATCHED, f"--trainer.max_steps={steps}", *flags)
    )
    return cli, Path(cli.trainer.loggers[0].log_dir)


def losses(home: Path) -> set[str]:
    return {name.removeprefix("train/loss/") for name in curves(home)[0] if name.startswith("train/loss/")}


def test_the_terms_of_a_run_are_those_of_its_classes(commands: Commands) -> None:
    _, plain = fit(commands)
    assert losses(plain) == {"ethical", "adversarial", "irrelevant", "span", "total"}
    _, anchored = fit(commands, "--data.anchor_unadvised=0.25")
    assert losses(anchored) == losses(plain) | {"unadvised"}


def test_groups_that_join_no_loss_are_refused(commands: Commands, tmp_path: Path) -> None:
    write_lei(unadvised(islice(story_groups.groups("train"), 6)), path := tmp_path / "bare.json")
    bare = f"--data.train_groups=[{path}]"
    still = SMALL["roberta"].replace("{", "{hidden_dropout_prob: 0.0, attention_probs_dropout_prob: 0.0, ")
    _, home = fit(commands, bare, f"--backbone.config={still}", "--model.reference_order=context_first")
    assert float(curves(home)[0]["train/loss/unadvised"]) < 1e-4  # the model that training starts from
    with pytest.raises(
        ValueError, match=r"data\.train_groups: no group .* none; raise .*unadvised_weight above"
    ):
        fit(commands, bare, "--model.loss.unadvised_weight=0")
