"""Group losses in training: which terms a run has, what it refuses, and the score that it is selected by."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pandas as pd
import pytest

from data_modules.groups.advice import unadvised
from data_modules.schema.spans import write_records
from data_modules.stories import groups as story_groups
from tests.training.conftest import SMALL, Commands, curves, lei, metrics_of

UNWATCHED = ("--data.val_qa={}", "--data.val_groups={}", "--trainer.log_every_n_steps=1")


def fit(commands: Commands, *flags: str, steps: int = 1, architecture: str = "roberta") -> Path:
    """The folder of a run of a few steps."""
    few = (*UNWATCHED, f"--trainer.max_steps={steps}")
    return lei(commands, "", *few, *flags, architecture=architecture)


def losses(home: Path) -> set[str]:
    names = set(pd.read_csv(home / "metrics.csv")["metric"])
    return {name.removeprefix("train/loss/") for name in names if name.startswith("train/loss/")}


def test_the_terms_of_a_run_are_those_of_its_classes(commands: Commands) -> None:
    home = fit(commands, "--data.anchor_unadvised=0.25")
    assert losses(home) == {"ethical", "adversarial", "irrelevant", "unadvised", "span", "total"}


def test_groups_that_join_no_loss_are_refused(commands: Commands, tmp_path: Path) -> None:
    write_records(unadvised(islice(story_groups.groups("train"), 6)), path := tmp_path / "bare.json")
    bare = f"--data.train_groups=[{path}]"
    still = SMALL["roberta"].replace("{", "{hidden_dropout_prob: 0.0, attention_probs_dropout_prob: 0.0, ")
    home = fit(commands, bare, f"--backbone.config={still}", "--data.encoding.order=question_first")
    assert curves(home, "train/loss/unadvised")[0][1] < 1e-4  # the model that training starts from
    said = r"data\.train_groups: no group .* none; raise .*unadvised_weight above"
    with pytest.raises(ValueError, match=said):
        fit(commands, bare, "--model.loss.unadvised_weight=0")


@pytest.mark.parametrize("architecture", ["roberta", "llama"])
def test_the_terms_of_domains(architecture: str, commands: Commands) -> None:
    """The vocabulary of the tiny model knows few of their words."""
    source = "--data.train_groups=['domains:all?number=2&groups=60']"
    small = ("--data.encoding.max_length=160", "--trainer.max_epochs=1")
    home = fit(commands, source, *small, steps=12, architecture=architecture)
    kinds = {"ethical", "adversarial", "irrelevant", "unadvised", "mismatched"}
    assert losses(home) == kinds | {"span", "total"}


def test_the_score_that_models_are_selected_by_needs_both_classes(commands: Commands, tmp_path: Path) -> None:
    write_records(unadvised(story_groups.groups("unseen")), plain := tmp_path / "plain.json")
    sets = f"--data.val_groups={{main: {commands.data.groups_dev}, plain: '{plain}'}}"
    found = metrics_of(commands.run("validate", "lei_zero_shot", "roberta", sets))
    mu = {name: found[f"val/bias/{name}/mu"] for name in ("ethical", "adversarial")}
    assert found["val/bias/selection"] == pytest.approx((1 - mu["adversarial"]) + mu["ethical"])
    assert "val/bias/plain/none/mu" in found
    assert "val/bias/plain/selection" not in found
