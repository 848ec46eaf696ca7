"""Who chooses among choices: checkpoints in batches of any size; language models against sums by hand."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data_modules.encoding.choices import ChoiceEncoding
from data_modules.schema import ChoiceQuestion
from data_modules.sources import read_choices
from data_modules.stories.questions import vocabulary
from data_modules.stories.word_tokenizer import build_tokenizer
from evaluation.answering.choice_checkpoint import ChoiceCheckpoint
from evaluation.answering.interface import Answerer, Choosing, Compute
from evaluation.answering.language_model import LanguageModel
from evaluation.answering.open import open_answerer
from evaluation.answering.prompts import CHOICE_WORDINGS, choice_prompt
from models.backbones import Backbone
from models.checkpoint import start
from models.heads.choice import ChoiceModel, Pooling
from models.heads.span import SpanModel
from storage.errors import DataError
from tests.data_modules.fixtures.fake_endpoint import Reply, serve
from tests.data_modules.fixtures.tiny_language_models import save
from tests.evaluation.checkpoints import save_model, tiny_model

QUESTIONS = read_choices("stories:choices_dev")[:9]
MIXED = [
    *QUESTIONS,
    ChoiceQuestion("two", "Anna is in the kitchen.", ("kitchen", "garden"), 0),
    ChoiceQuestion("empty", "", ("red", "blue", "green", "white", "black"), 3),
    QUESTIONS[0],
]
SIMPLE = [
    ChoiceQuestion("0", "where is the cat ?", ("on the mat", "under the red mat ."), 0),
    ChoiceQuestion("1", "", ("the dog ran", "the cat"), 1),
]
CPU = Compute(device="cpu")


def chooser_of(path: str, **how: Any) -> Answerer:
    return open_answerer(path, Choosing(device="cpu", **how), need="choices")


def save_choice_ckpt(
    path: Path, architecture: str = "bert", pooling: Pooling = "masked", **encoding: object
) -> Path:
    """A tiny model of multiple choice, as training saves it."""
    encoder = tiny_model(architecture).encoder
    model = ChoiceModel(encoder, architecture, pooling=pooling, generator=torch.Generator().manual_seed(0))
    return save_model(path, model, ChoiceEncoding(**encoding))  # type: ignore[arg-type]


def test_logits_do_not_depend_on_batches(tmp_path: Path) -> None:
    path = str(save_choice_ckpt(tmp_path / "a.ckpt", "xlnet"))  # which pads on the left
    one, many = (ChoiceCheckpoint(path, replace(CPU, batch_size=size)) for size in (1, 100))
    alone = [one.choice_logits([example])[0] for example in MIXED]
    for checkpoint in (one, many):
        found = checkpoint.choice_logits(MIXED)
        assert [len(logits) for logits in found] == [len(example.choices) for example in MIXED]
        for logits, wanted in zip(found, alone, strict=True):
            assert logits.dtype == np.float32
            np.testing.assert_allclose(logits, wanted, atol=1e-5)
    assert one.choice_logits([]) == []


def test_parity_logits_are_padded_as_in_training(tmp_path: Path) -> None:
    path = str(save_choice_ckpt(tmp_path / "a.ckpt", "roberta", "parity", padding="parity", max_length=64))
    checkpoint = ChoiceCheckpoint(path, CPU)
    assert (checkpoint.model.pooling, checkpoint.encoding.padding) == ("parity", "parity")
    logits = checkpoint.choice_logits(MIXED)[0]
    np.testing.assert_allclose(logits, checkpoint.choice_logits(QUESTIONS[:1])[0], atol=1e-5)


def test_embeddings_are_unit_vectors_in_the_order_of_the_texts(tmp_path: Path) -> None:
    checkpoint = ChoiceCheckpoint(str(save_choice_ckpt(tmp_path / "a.ckpt")), replace(CPU, batch_size=2))
    texts = ["Anna is in the kitchen.", "red", "Anna is in the kitchen.", "Who has a ball?"]
    found = checkpoint.embeddings(texts)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(found[0], found[2], atol=1e-5)
    hidden = checkpoint.model.encode(dict(checkpoint.tokenizer("red", return_tensors="pt")))
    wanted = torch.nn.functional.normalize(hidden.mean(1), dim=-1)[0]
    np.testing.assert_allclose(found[1], wanted.detach(), atol=1e-5)


def test_folder_has_a_random_head_and_rows_that_fit_its_positions(tmp_path: Path) -> None:
    short = {"vocab_size": 320, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = short | {"intermediate_size": 16, "max_position_embeddings": 16}
    backbone = Backbone(architecture="bert", checkpoint="random", config=config)
    start(backbone, SpanModel).to_pretrained().save_pretrained(tmp_path)
    build_tokenizer("bert", vocabulary()).save_pretrained(tmp_path)
    checkpoint = ChoiceCheckpoint(str(tmp_path), CPU)
    assert checkpoint.encoding.max_length == 16
    assert len(checkpoint.choice_logits(QUESTIONS)) == len(QUESTIONS)


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A tiny language model by kind."""
    home = tmp_path_factory.mktemp("models")
    return {kind: save(home / kind, kind) for kind in ("gpt2", "t5")}.__getitem__


def by_hand(model: Any, prompt: str, choice: str) -> tuple[float, int]:
    """log P(choice | prompt) and its tokens, one forward pass and a loop."""
    first = model.tokenizer(prompt)["input_ids"]
    second = model.tokenizer(choice, add_special_tokens=False)["input_ids"] + [1] * model.is_seq2seq
    with torch.no_grad():
        if model.is_seq2seq:
            inputs = {"input_ids": torch.tensor([first]), "labels": torch.tensor([second])}
            log = model.model(**inputs).logits[0].log_softmax(-1)
            return sum(float(log[i, token]) for i, token in enumerate(second)), len(second)
        log = model.model(input_ids=torch.tensor([first + second])).logits[0].log_softmax(-1)
    return sum(float(log[len(first) - 1 + i, token]) for i, token in enumerate(second)), len(second)


@pytest.mark.parametrize("likelihood", ["mean", "sum"])
@pytest.mark.parametrize("kind", ["gpt2", "t5"])
def test_logit_is_the_log_likelihood_of_the_choice(
    folder_of: Callable[[str], Path], kind: str, likelihood: str
) -> None:
    wording = CHOICE_WORDINGS["unifiedqa" if kind == "t5" else "plain"]
    chooser = chooser_of(f"hf:{folder_of(kind)}", likelihood=likelihood)
    assert isinstance(chooser, LanguageModel)
    for example, logit_C in zip(SIMPLE, chooser.choice_logits(SIMPLE), strict=True):
        for choice, logit in zip(example.choices, logit_C, strict=True):
            total, tokens = by_hand(chooser.model, choice_prompt(example, wording), choice)
            expected = total / tokens if likelihood == "mean" else total
            assert logit == pytest.approx(expected, rel=1e-4)


def test_choices_behind_a_plain_prompt_do_not_see_each_other(folder_of: Callable[[str], Path]) -> None:
    chooser = chooser_of(f"hf:{folder_of('gpt2')}")
    (straight,) = chooser.choice_logits(SIMPLE[:1])
    (turned,) = chooser.choice_logits([replace(SIMPLE[0], choices=SIMPLE[0].choices[::-1])])
    assert turned[::-1] == pytest.approx(straight, rel=1e-5)


def test_question_that_does_not_fit_is_named(folder_of: Callable[[str], Path]) -> None:
    chooser = chooser_of(f"hf:{folder_of('gpt2')}")
    with pytest.raises(DataError, match="long one"):
        chooser.choice_logits([ChoiceQuestion("long one", "the cat " * 20, ("on", "under"), 0)])


def letters(prompt: str, _: int) -> Reply:
    """A chat model that likes the letter A, and what is right more; of C it says nothing."""
    lines = re.findall(r"^([AB])\. (.*)$", prompt, re.M)
    values = {letter: 1.0 * (letter == "A") + 2.0 * ("right" in text) for letter, text in lines}
    total = math.log(sum(map(math.exp, values.values())))
    tops = [{"token": f" {letter}", "logprob": value - total} for letter, value in values.items()]
    content = [{**tops[0], "top_logprobs": tops}]
    choice = {"index": 0, "message": {"content": "A"}, "logprobs": {"content": content}}
    return Reply(body=json.dumps({"choices": [choice]}))


def test_letter_logits_are_those_of_the_letters() -> None:
    questions = [
        ChoiceQuestion("0", "What?", ("right", "wrong", "bad"), 0),
        ChoiceQuestion("1", "Which?", ("wrong", "right"), 1),
    ]
    with serve(letters) as endpoint:
        how = Choosing(choice_prompt="letters", batch_size=1)
        chooser = open_answerer(f"openai:m@{endpoint.url}", how, need="choices")
        found = chooser.choice_logits(questions)
        assert endpoint.prompts == [
            "What?\nA. right\nB. wrong\nC. bad\nAnswer:",
            "Which?\nA. wrong\nB. right\nAnswer:",
        ]
    expected = [np.log(np.exp(values) / np.exp(values).sum()) for values in ([3, 0], [1, 2])]
    np.testing.assert_allclose(found[0], [*expected[0], -100], atol=1e-5)
    np.testing.assert_allclose(found[1], expected[1], atol=1e-5)
