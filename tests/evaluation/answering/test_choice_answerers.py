"""Choosing by likelihood against sums made by hand, and by a checkpoint that stands alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from data_modules.choices.rows import write_choices
from data_modules.schema import ChoiceQuestion
from evaluation.__main__ import main
from evaluation.answering.choice_answerers import CHOICE_WORDINGS, LikelihoodChooser, choice_prompt
from models.language.local_model import LocalTextModel
from storage.errors import DataError
from tests.data_modules.tiny_language_models import save
from tests.evaluation.checkpoints import save_folder

EXAMPLES = [
    ChoiceQuestion("0", "where is the cat ?", ("on the mat", "under the red mat ."), 0),
    ChoiceQuestion("1", "", ("the dog ran", "the cat"), 1),
]


@pytest.fixture(scope="module")
def open_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], LocalTextModel]:
    folders: dict[str, Path] = {}

    def build(kind: str) -> LocalTextModel:
        if kind not in folders:
            folders[kind] = save(tmp_path_factory.mktemp("models") / kind, kind)
        return LocalTextModel(str(folders[kind]), device="cpu", batch_size=2)

    return build


def by_hand(model: LocalTextModel, prompt: str, choice: str) -> tuple[float, int]:
    """log P(choice | prompt) and its tokens, one forward pass and a loop."""
    first = model.tokenizer(prompt)["input_ids"]
    second = model.tokenizer(choice, add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        if model.is_seq2seq:
            inputs = {"input_ids": torch.tensor([first]), "labels": torch.tensor([second])}
            log = model.model(**inputs).logits[0].log_softmax(-1)
            return sum(float(log[i, token]) for i, token in enumerate(second)), len(second)
        log = model.model(input_ids=torch.tensor([first + second])).logits[0].log_softmax(-1)
    return sum(float(log[len(first) - 1 + i, token]) for i, token in enumerate(second)), len(second)


@pytest.mark.parametrize("kind", ["gpt2", "t5"])
def test_a_logit_is_the_log_likelihood_of_the_choice(
    open_model: Callable[[str], LocalTextModel], kind: str
) -> None:
    model = open_model(kind)
    wording = CHOICE_WORDINGS["unifiedqa" if kind == "t5" else "plain"]
    for likelihood in ("mean", "sum"):
        chooser = LikelihoodChooser(model, likelihood=likelihood)
        assert chooser.wording == wording, "the default goes by the kind of model"
        found = list(chooser.logits(EXAMPLES))
        for example, logit_C in zip(EXAMPLES, found, strict=True):
            for choice, logit in zip(example.choices, logit_C, strict=True):
                total, tokens = by_hand(model, choice_prompt(example, wording), choice)
                expected = total / tokens if likelihood == "mean" else total
                assert logit == pytest.approx(expected, rel=1e-4)
                assert logit_C.dtype == np.float32


def test_choices_behind_a_plain_prompt_do_not_see_each_other(
    open_model: Callable[[str], LocalTextModel],
) -> None:
    chooser = LikelihoodChooser(open_model("gpt2"))
    (straight,) = chooser.logits(EXAMPLES[:1])
    (turned,) = chooser.logits([replace(EXAMPLES[0], choices=EXAMPLES[0].choices[::-1])])
    assert turned[::-1] == pytest.approx(straight, rel=1e-5)


def test_a_question_that_does_not_fit_is_named(open_model: Callable[[str], LocalTextModel]) -> None:
    chooser = LikelihoodChooser(open_model("gpt2"))
    long = ChoiceQuestion("long one", "the cat " * 20, ("on", "under"), 0)
    with pytest.raises(DataError, match=r"question long one: .* longer than the model's context"):
        list(chooser.logits([long]))
    many = ChoiceQuestion("many", "why", tuple(map(str, range(30))), 0)
    with pytest.raises(DataError, match="question many: 30 choices are more than there are letters"):
        choice_prompt(many, CHOICE_WORDINGS["unifiedqa"])
    assert choice_prompt(many, CHOICE_WORDINGS["plain"]).startswith("why"), "which needs no letters"


def test_more_choices_than_letters_are_told_before_any_question_is_asked(
    open_model: Callable[[str], LocalTextModel], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [ChoiceQuestion(str(i), f"where {i} ?", (f"the {i}", "a mat"), 0, "toy") for i in range(40)]
    write_choices(tmp_path / "rows.jsonl", rows)
    flags = ["--sampling", "random", "--choices", "30", "--trials", "1", "--output", str(tmp_path / "out")]
    model = f"t5={open_model('t5').name}"
    assert main(["confusion", "--checkpoint", model, "--input", str(tmp_path / "rows.jsonl"), *flags]) == 2
    assert "30 choices are more than there are letters" in capsys.readouterr().err
    assert not (tmp_path / "out.work.jsonl").exists()


def test_a_language_model_and_an_encoder_run_side_by_side(
    open_model: Callable[[str], LocalTextModel], tmp_path: Path
) -> None:
    """A random head, under whatever encoder, is right by chance alone, and every hits@n is 1."""
    things = ("cat", "dog", "mat", "red", "blue", "ran")
    examples = [
        ChoiceQuestion(str(i), f"where {thing} ?", (f"the {thing} sat", "a mat is not red"), 0, "toy")
        for i, thing in enumerate(things)
    ]
    write_choices(tmp_path / "rows.jsonl", examples)
    encoder = str(save_folder(tmp_path / "encoder"))
    models = [f"gpt={open_model('gpt2').name}", f"random={encoder}"]
    flags = ["--trials", "2", "--choices", "3", "--instances", "4", "--encoder", encoder]
    arguments = ["--input", str(tmp_path / "rows.jsonl"), "--output", str(tmp_path / "out"), *flags]
    assert main(["confusion", "--checkpoint", *models, *arguments]) == 0
    found = json.loads((tmp_path / "out/report.json").read_text())
    for model in ("gpt", "random"):
        assert found[f"{model}/choice_paralysis/heuristic/3/hits@3"] == 1
        assert found[f"{model}/no_question/n"] == 6
    assert found["about"]["checkpoints"]["gpt"]["model"]["prompt"]["prompt"].startswith("{prompt}")
    rows = [json.loads(line) for line in (tmp_path / "out/examples.jsonl").read_text().splitlines()]
    heuristic = [row for row in rows if row.get("sampling") == "heuristic"]
    donors = {
        model: [row["donors"] for row in heuristic if row["checkpoint"] == model]
        for model in ("gpt", "random")
    }
    assert donors["gpt"] == donors["random"], "one encoder, the same choices for all"
