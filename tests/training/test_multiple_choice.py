"""Multiple choice through the command line: fit, validate, test, predict, resume."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data_modules.records import write_records
from data_modules.schema import ChoiceQuestion
from data_modules.sources import read_choices
from evaluation.answering.checkpoint import ChoiceCheckpoint, QuestionCheckpoint
from evaluation.answering.interface import Asking, Compute
from evaluation.answering.open import open_answerer
from tests.mistakes.conftest import refused
from tests.training.conftest import CONFIGS, Commands, metrics_of
from training.cli import main as train

QUESTIONS = read_choices("stories:choices_dev")
PAIRS = [
    ChoiceQuestion(e.id, e.prompt, e.choices[:2], 0 if e.label == 0 else 1, "pairs")
    for e in QUESTIONS[40:46]
    if e.label != 2
]


class Choosing:
    """Arguments of runs on files of questions: 24 to train on; 11 and some with two choices to watch."""

    def __init__(self, commands: Commands, folder: Path) -> None:
        self.commands, self.root = commands, commands.root
        self.train, self.dev = folder / "train.jsonl", folder / "dev.jsonl"
        write_records(QUESTIONS[:24], self.train)
        write_records([*QUESTIONS[24:35], *PAIRS], self.dev)
        self.watched = 11 + len(PAIRS)

    def of(self, subcommand: str, architecture: str, *flags: str) -> list[str]:
        return self.commands.of(
            subcommand,
            "multiple_choice",
            architecture,
            f"--data.train_choices=[{self.train}]",
            f"--data.val_choices={{main: {self.dev}, pairs: {self.dev}}}",
            "--data.choices.batch_size=5",
            "--trainer.max_epochs=1",
            *flags,
        )

    def metrics(self, version: str = "version_0", name: str = "multiple_choice") -> dict[str, float]:
        return metrics_of(self.root / name / version)


@pytest.fixture
def choosing(commands: Commands, tmp_path: Path) -> Choosing:
    return Choosing(commands, tmp_path)


def test_a_run_from_fit_to_resume(choosing: Choosing) -> None:
    architecture = "xlnet"  # which pads on the left
    fit = choosing.of("fit", architecture, "--ckpt_path=auto")
    train(fit)
    home = choosing.root / "multiple_choice" / "version_0"
    after_fit = choosing.metrics()
    assert after_fit["val/choices/n"] == choosing.watched
    assert after_fit["val/choices/pairs/n"] == choosing.watched
    assert 0 <= after_fit["val/choices/accuracy"] <= 1
    last = home / "checkpoints" / "last.ckpt"
    assert torch.load(last, weights_only=True)["interventune"]["heads"] == "choice"

    # Other commands, another batch size, and the evaluation room from the file alone: the same numbers.
    flags = [f"--ckpt_path={last}", "--data.eval_batch_size=7"]
    train(choosing.of("validate", architecture, *flags, "--run.name=again"))
    tests = f"--data.test_choices.main={choosing.dev}"
    train(choosing.of("test", architecture, *flags, "--run.name=tested", tests))
    for name, stage in (("again", "val"), ("tested", "test")):
        for metric in ("accuracy", "loss", "n"):
            found = choosing.metrics(name=name)[f"{stage}/choices/{metric}"]
            assert found == pytest.approx(after_fit[f"val/choices/{metric}"], abs=1e-5)
    predicted = f"--data.predict_choices.said={choosing.dev}"
    train(choosing.of("predict", architecture, *flags, "--run.name=told", predicted))
    rows = json.loads((choosing.root / "told" / "version_0" / "predictions" / "said.json").read_text())
    examples = read_choices(choosing.dev)
    assert [row["id"] for row in rows] == [example.id for example in examples]
    logits = ChoiceCheckpoint(str(last), Compute("cpu", batch_size=9)).choice_logits(examples)
    for row, own in zip(rows, logits, strict=True):
        assert row["logits"] == pytest.approx(own.tolist(), abs=1e-5)
        assert row["choice"] == int(np.argmax(row["logits"]))
    right = [row["choice"] == row["label"] for row in rows]
    assert sum(right) / len(right) == pytest.approx(after_fit["val/choices/accuracy"])

    train([*fit, "--trainer.max_epochs=2"])
    assert choosing.metrics()["step"] == 2 * after_fit["step"]
    assert not (choosing.root / "multiple_choice" / "version_1").exists()


def test_a_decoder_learns_to_choose_as_it_is_asked(choosing: Choosing) -> None:
    """Scores of training are what evaluation computes pair by pair; others ask the checkpoint too."""
    undecided = [replace(question, target="unknown") for question in QUESTIONS[:24]]
    write_records(undecided, choosing.train)
    longest = "--data.choices.encoding.max_length=64"
    gap = ("--model.gap_weight=0.5", "--model.learning_rate=1e-3")
    train(choosing.of("fit", "llama", longest, *gap))
    last = choosing.root / "multiple_choice" / "version_0" / "checkpoints" / "last.ckpt"
    flags = (f"--ckpt_path={last}", "--run.name=told", f"--data.predict_choices.said={choosing.dev}")
    train(choosing.of("predict", "llama", longest, *flags))
    rows = json.loads((choosing.root / "told" / "version_0" / "predictions" / "said.json").read_text())
    asked = open_answerer(str(last), Compute("cpu"), need="choices").choice_logits(read_choices(choosing.dev))
    for row, logit_C in zip(rows, asked, strict=True):
        shares = torch.tensor(logit_C).log_softmax(-1).tolist()
        assert row["logits"] == pytest.approx(shares, abs=1e-5), row["id"]
    assert QuestionCheckpoint(str(last), Asking(device="cpu")).encoding.max_length == 64


def test_the_authors_settings_train(choosing: Choosing) -> None:
    """All that the parity experiment sets, on a model of a few weights."""
    parity = CONFIGS / "experiments" / "multiple_choice_parity.yaml"
    train(choosing.of("fit", "roberta", "-c", str(parity), "--model.learning_rate=1e-3"))
    home = choosing.root / "multiple_choice_parity" / "version_0"
    predictor = ChoiceCheckpoint(str(home / "checkpoints" / "last.ckpt"), Compute("cpu"))
    assert (predictor.model.pooling, predictor.encoding.padding) == ("parity", "parity")
    state: dict[str, Any] = torch.load(home / "checkpoints" / "last.ckpt", weights_only=True)
    assert not state["lr_schedulers"]
    for group in state["optimizer_states"][0]["param_groups"]:
        assert (group["lr"], group["eps"], group["weight_decay"]) == (1e-3, 1e-7, 0.0)


def test_mistakes_are_one_line(choosing: Choosing) -> None:
    questions = ["--data=data_modules.questions_data.QuestionsDataModule", "--data.train_qa=stories:dev"]
    for flags, said in (
        (["--data.train_choices=[]"], "data.train_choices"),
        (["--data.choices.encoding.max_length=1000"], "data.choices.encoding.max_length"),
        (["--model.pooling=parity"], "data.choices.encoding.padding"),
        (questions, "Choice"),
        (["--model=training.modules.qa.QAModule"], "ChoiceModule"),
    ):
        refused("training", choosing.of("fit", "bert", *flags), said)


def test_a_choice_checkpoint_goes_nowhere_else(choosing: Choosing) -> None:
    train(choosing.of("fit", "bert", "--trainer.max_steps=1"))
    ckpt = choosing.root / "multiple_choice" / "version_0" / "checkpoints" / "last.ckpt"
    for flag in (f"--ckpt_path={ckpt}", f"--backbone.checkpoint={ckpt}"):
        refused("training", choosing.commands.of("fit", "squad", "bert", flag), "'span'")
