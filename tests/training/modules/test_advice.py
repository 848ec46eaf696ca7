"""Group losses in training: which terms a run has, and what it refuses."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from data_modules.groups.advice import unadvised
from data_modules.schema.spans import write_records
from data_modules.stories import groups as story_groups
from tests.training.conftest import SMALL, Commands, curves
from training.cli import main as train

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
    names = set(pd.read_csv(home / "metrics.csv")["metric"])
    return {name.removeprefix("train/loss/") for name in names if name.startswith("train/loss/")}


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


@pytest.mark.parametrize("architecture", ["roberta", "llama"])
def test_the_terms_of_domains(architecture: str, commands: Commands) -> None:
    """The vocabulary of the tiny model knows few of their words."""
    source = "--data.train_groups=['domains:all?number=2&groups=60']"
    small = ("--data.encoding.max_length=160", "--trainer.max_epochs=1")
    _, home = fit(commands, source, *small, steps=12, architecture=architecture)
    kinds = {"ethical", "adversarial", "irrelevant", "unadvised", "mismatched"}
    assert losses(home) == kinds | {"span", "total"}
