"""Multiple choice through the command line: fit, validate, test, predict, resume."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from interventune.data_modules.schema.questions import ChoiceQuestion, write_records
from interventune.data_modules.sources import read_choices
from interventune.evaluation.answering.checkpoint import ChoiceCheckpoint, QuestionCheckpoint
from interventune.evaluation.answering.interface import Asking, Compute, open_answerer
from tests.mistakes.conftest import refused
from tests.training.conftest import Commands, metrics_of

QUESTIONS = read_choices("stories:choices_dev")
TWO = (one for one in QUESTIONS[40:46] if one.label != 2)
PAIRS = [ChoiceQuestion(e.id, e.prompt, e.choices[:2], e.label, "pairs") for e in TWO]


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """11 questions and some with two choices to watch, and 24 to train on."""
    folder = tmp_path_factory.mktemp("choices")
    write_records(QUESTIONS[:24], folder / "train.jsonl")
    write_records([*QUESTIONS[24:35], *PAIRS], folder / "dev.jsonl")
    return folder / "dev.jsonl"


@pytest.fixture
def sets(dev: Path) -> str:
    """Train on these files, and watch them."""
    flags = f"--data.train_choices=[{dev.with_name('train.jsonl')}] --data.batch_size=5"
    return f"{flags} --data.val_choices={{main: {dev}, pairs: {dev}}}"


def predictions(commands: Commands, architecture: str, last: Path, file: Path, *flags: str) -> Any:
    """What a checkpoint writes of a file."""
    sets = f"--ckpt_path={last} --run.name=predict --data.predict_choices.answers={file}"
    home = commands.run("predict", "multiple_choice", architecture, sets, *flags)
    return json.loads((home / "predictions" / "answers.json").read_text())


def test_a_run_from_fit_to_resume(commands: Commands, sets: str, dev: Path) -> None:
    architecture = "xlnet"  # it pads on the left
    fit = ("fit", "multiple_choice", architecture, sets, "--ckpt_path=auto")
    home = commands.run(*fit, "--trainer.max_epochs=1")
    after_fit, last = metrics_of(home), home / "checkpoints" / "last.ckpt"
    assert after_fit["val/choices/n"] == after_fit["val/choices/pairs/n"] == 11 + len(PAIRS)

    # Other commands, another batch size, and the evaluation room from the file alone: the same
    # numbers.
    other = "--data.eval_batch_size=7"
    sets_of_test = f"--ckpt_path={last} --data.test_choices.main={dev}"
    tested = metrics_of(commands.run("test", "multiple_choice", architecture, sets_of_test, other))
    for metric in ("accuracy", "loss", "n"):
        expected = pytest.approx(after_fit[f"val/choices/{metric}"], abs=1e-5)
        assert tested[f"test/choices/{metric}"] == expected
    rows, examples = predictions(commands, architecture, last, dev, other), read_choices(dev)
    assert [row["id"] for row in rows] == [example.id for example in examples]
    logits = ChoiceCheckpoint(str(last), Compute("cpu", batch_size=9)).choice_logits(examples)
    for row, own in zip(rows, logits, strict=True):
        assert row["logits"] == pytest.approx(own.tolist(), abs=1e-5)
        assert row["choice"] == int(np.argmax(row["logits"]))
    right = [row["choice"] == row["label"] for row in rows]
    assert sum(right) / len(right) == pytest.approx(after_fit["val/choices/accuracy"])

    commands.run(*fit, "--trainer.max_epochs=2")
    assert metrics_of(home)["step"] == 2 * after_fit["step"]
    for flag, word in (("--ckpt_path", "model.class_path"), ("--backbone.checkpoint", "'span'")):
        refused("training", commands.of("fit", "squad", architecture, f"{flag}={last}"), word)


def test_a_decoder_chooses_as_it_learned(commands: Commands, sets: str, dev: Path) -> None:
    """Scores of training are what evaluation computes; another protocol opens the checkpoint."""
    undecided, longest = commands.root.parent / "undecided.jsonl", "--data.encoding.max_length=64"
    write_records((replace(question, target="unknown") for question in QUESTIONS[:24]), undecided)
    gap = f"--data.train_choices=[{undecided}] --model.gap_weight=0.5 --model.learning_rate=1e-3"
    flags = (sets, longest, gap, "--trainer.max_epochs=1")
    home = commands.run("fit", "multiple_choice", "llama", *flags)
    last = home / "checkpoints" / "last.ckpt"
    rows = predictions(commands, "llama", last, dev, longest)
    model = open_answerer(str(last), Compute("cpu"), need="choices")
    for row, logit_C in zip(rows, model.choice_logits(read_choices(dev)), strict=True):
        shares = torch.tensor(logit_C).log_softmax(-1).tolist()
        assert row["logits"] == pytest.approx(shares, abs=1e-5), row["id"]
    assert QuestionCheckpoint(str(last), Asking(device="cpu")).encoding.max_length == 64


def test_the_authors_settings_train(commands: Commands, sets: str) -> None:
    """All that the parity experiment sets, on a model of a few weights."""
    flags = "--model.learning_rate=1e-3 --trainer.max_epochs=1"
    home = commands.run("fit", "multiple_choice_parity", "roberta", sets, flags)
    last = home / "checkpoints/last.ckpt"
    predictor = ChoiceCheckpoint(str(last), Compute("cpu"))
    assert (predictor.model.pooling, predictor.encoding.padding) == ("parity", "parity")
    state: dict[str, Any] = torch.load(last, weights_only=True)
    assert not state["lr_schedulers"]
    for group in state["optimizer_states"][0]["param_groups"]:
        assert (group["lr"], group["eps"], group["weight_decay"]) == (1e-3, 1e-7, 0.0)


def test_mistakes_are_one_line(commands: Commands, sets: str) -> None:
    questions = "--data=interventune.data_modules.questions_data.QuestionsDataModule"
    for flags, words in (
        ("--data.train_choices=[]", "data.train_choices"),
        ("--data.encoding.max_length=1000", "data.encoding.max_length"),
        ("--model.pooling=parity", "data.encoding.padding"),
        (f"{questions} --data.train_qa=stories:dev", "Choice"),
        ("--model=interventune.training.modules.qa.QAModule", "ChoiceModule"),
    ):
        refused("training", commands.of("fit", "multiple_choice", "bert", sets, flags), words)
