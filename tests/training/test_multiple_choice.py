"""Multiple choice through the command line: fit, validate, test, predict, resume."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data_modules.schema.questions import ChoiceQuestion
from data_modules.schema.spans import write_records
from data_modules.sources import read_choices
from evaluation.answering.asking import Asking, Compute
from evaluation.answering.checkpoint import QuestionCheckpoint
from evaluation.answering.choice_checkpoint import ChoiceCheckpoint
from evaluation.answering.open import open_answerer
from tests.mistakes.conftest import refused
from tests.training.conftest import Commands, metrics_of
from training.cli import main as train

QUESTIONS = read_choices("stories:choices_dev")
PAIRS = [
    ChoiceQuestion(e.id, e.prompt, e.choices[:2], 0 if e.label == 0 else 1, "pairs")
    for e in QUESTIONS[40:46]
    if e.label != 2
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """24 questions to train on; 11 and some with two choices to watch."""
    folder = tmp_path_factory.mktemp("choices")
    write_records(QUESTIONS[:24], folder / "train.jsonl")
    write_records([*QUESTIONS[24:35], *PAIRS], folder / "dev.jsonl")
    return {name: folder / f"{name}.jsonl" for name in ("train", "dev")}


Choosing = Callable[..., list[str]]


@pytest.fixture
def choosing(commands: Commands, files: dict[str, Path]) -> Choosing:
    """Arguments of runs on these files."""
    sets = f"{{main: {files['dev']}, pairs: {files['dev']}}}"
    data = (f"--data.train_choices=[{files['train']}]", f"--data.val_choices={sets}")
    sizes = ("--data.batch_size=5", "--trainer.max_epochs=1")

    def arguments(subcommand: str, architecture: str, *flags: str) -> list[str]:
        return commands.of(subcommand, "multiple_choice", architecture, *data, *sizes, *flags)

    return arguments


def test_a_run_from_fit_to_resume(choosing: Choosing, commands: Commands, files: dict[str, Path]) -> None:
    architecture = "xlnet"  # which pads on the left
    fit = choosing("fit", architecture, "--ckpt_path=auto")
    train(fit)
    home = commands.root / "multiple_choice" / "version_0"
    after_fit = metrics_of(home)
    assert after_fit["val/choices/n"] == 11 + len(PAIRS)
    assert after_fit["val/choices/pairs/n"] == 11 + len(PAIRS)
    last = home / "checkpoints" / "last.ckpt"

    # Other commands, another batch size, and the evaluation room from the file alone: the same numbers.
    flags = [f"--ckpt_path={last}", "--data.eval_batch_size=7"]
    train(
        choosing(
            "test", architecture, *flags, "--run.name=tested", f"--data.test_choices.main={files['dev']}"
        )
    )
    tested = metrics_of(commands.root / "tested" / "version_0")
    for metric in ("accuracy", "loss", "n"):
        assert tested[f"test/choices/{metric}"] == pytest.approx(after_fit[f"val/choices/{metric}"], abs=1e-5)
    predicted = f"--data.predict_choices.said={files['dev']}"
    train(choosing("predict", architecture, *flags, "--run.name=told", predicted))
    rows = json.loads((commands.root / "told" / "version_0" / "predictions" / "said.json").read_text())
    examples = read_choices(files["dev"])
    assert [row["id"] for row in rows] == [example.id for example in examples]
    logits = ChoiceCheckpoint(str(last), Compute("cpu", batch_size=9)).choice_logits(examples)
    for row, own in zip(rows, logits, strict=True):
        assert row["logits"] == pytest.approx(own.tolist(), abs=1e-5)
        assert row["choice"] == int(np.argmax(row["logits"]))
    right = [row["choice"] == row["label"] for row in rows]
    assert sum(right) / len(right) == pytest.approx(after_fit["val/choices/accuracy"])

    train([*fit, "--trainer.max_epochs=2"])
    assert metrics_of(home)["step"] == 2 * after_fit["step"]
    for flag, word in (("--ckpt_path", "model.class_path"), ("--backbone.checkpoint", "'span'")):
        refused("training", commands.of("fit", "squad", architecture, f"{flag}={last}"), word)


def test_a_decoder_learns_to_choose_as_it_is_asked(
    choosing: Choosing, commands: Commands, files: dict[str, Path]
) -> None:
    """Scores of training are what evaluation computes pair by pair; others ask the checkpoint too."""
    undecided = commands.root.parent / "undecided.jsonl"
    write_records((replace(question, target="unknown") for question in QUESTIONS[:24]), undecided)
    longest = "--data.encoding.max_length=64"
    gap = (f"--data.train_choices=[{undecided}]", "--model.gap_weight=0.5", "--model.learning_rate=1e-3")
    train(choosing("fit", "llama", longest, *gap))
    last = commands.root / "multiple_choice" / "version_0" / "checkpoints" / "last.ckpt"
    flags = (f"--ckpt_path={last}", "--run.name=told", f"--data.predict_choices.said={files['dev']}")
    train(choosing("predict", "llama", longest, *flags))
    rows = json.loads((commands.root / "told" / "version_0" / "predictions" / "said.json").read_text())
    asked = open_answerer(str(last), Compute("cpu"), need="choices").choice_logits(read_choices(files["dev"]))
    for row, logit_C in zip(rows, asked, strict=True):
        shares = torch.tensor(logit_C).log_softmax(-1).tolist()
        assert row["logits"] == pytest.approx(shares, abs=1e-5), row["id"]
    assert QuestionCheckpoint(str(last), Asking(device="cpu")).encoding.max_length == 64


def test_the_authors_settings_train(choosing: Choosing, commands: Commands) -> None:
    """All that the parity experiment sets, on a model of a few weights."""
    arguments = choosing("fit", "roberta", "--model.learning_rate=1e-3")
    train([part.replace("multiple_choice.yaml", "multiple_choice_parity.yaml") for part in arguments])
    home = commands.root / "multiple_choice_parity" / "version_0"
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
        (["--data.encoding.max_length=1000"], "data.encoding.max_length"),
        (["--model.pooling=parity"], "data.encoding.padding"),
        (questions, "Choice"),
        (["--model=training.modules.qa.QAModule"], "ChoiceModule"),
    ):
        refused("training", choosing("fit", "bert", *flags), said)
