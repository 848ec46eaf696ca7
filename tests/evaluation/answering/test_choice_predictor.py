"""ChoicePredictor: logits in order whatever the batches, and models that cannot choose."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

from data_modules.choices.benchmarks import read_multiple_choice
from data_modules.encoding.choices import ChoiceEncoding
from data_modules.encoding.tokenizers import tokenizer_files
from data_modules.schema import ChoiceQuestion
from data_modules.stories.questions import vocabulary
from data_modules.stories.word_tokenizer import build_tokenizer
from evaluation.answering.choice_answerers import CheckpointChooser
from evaluation.answering.choice_predictor import ChoicePredictor
from evaluation.answering.predictor import Predictor
from models.backbones import Backbone
from models.checkpoint import KEY, describe, start
from models.heads.choice import ChoiceModel, Pooling
from models.heads.span import SpanModel
from tests.evaluation.checkpoints import save_ckpt, save_folder, tiny_model

QUESTIONS = read_multiple_choice("stories:choices_dev")[:9]
MIXED = [
    *QUESTIONS,
    ChoiceQuestion("two", "Anna is in the kitchen.", ("kitchen", "garden"), 0),
    ChoiceQuestion("empty", "", ("red", "blue", "green", "white", "black"), 3),
    QUESTIONS[0],
]


def save_choice_ckpt(
    path: Path, architecture: str = "bert", pooling: Pooling = "masked", **encoding: object
) -> Path:
    """A tiny model of multiple choice, as training saves it."""
    encoder = tiny_model(architecture).encoder
    model = ChoiceModel(encoder, architecture, pooling=pooling, generator=torch.Generator().manual_seed(0))
    files = tokenizer_files(build_tokenizer(architecture, vocabulary()))  # type: ignore[arg-type]
    content = {
        "state_dict": {f"model.{key}": value for key, value in model.state_dict().items()},
        "global_step": 1,
        KEY: describe(model, files, asdict(ChoiceEncoding(**encoding))),  # type: ignore[arg-type]
    }
    torch.save(content, path)
    return path


@pytest.mark.parametrize("architecture", ["bert", "roberta", "xlnet"])
def test_logits_do_not_depend_on_batches(architecture: str, tmp_path: Path) -> None:
    path = str(save_choice_ckpt(tmp_path / "a.ckpt", architecture))
    one = ChoicePredictor(path, device="cpu", batch_size=1)
    many = ChoicePredictor.of(path, argparse.Namespace(device="cpu", precision="32", batch_size=100))
    alone = [one.logits([example])[0] for example in MIXED]
    for predictor in (one, many):
        found = predictor.logits(MIXED, "asking")
        assert [len(logits) for logits in found] == [len(example.choices) for example in MIXED]
        for logits, wanted in zip(found, alone, strict=True):
            assert logits.dtype == np.float32
            np.testing.assert_allclose(logits, wanted, atol=1e-5)
    np.testing.assert_allclose(found[0], found[-1], atol=1e-5)
    assert one.weights_id == many.weights_id
    assert one.settings == many.settings | {"batch_size": 1}
    assert one.logits([]) == []


def test_parity_pads_as_in_training(tmp_path: Path) -> None:
    path = str(save_choice_ckpt(tmp_path / "a.ckpt", "roberta", "parity", padding="parity", max_length=64))
    predictor = ChoicePredictor(path, device="cpu", batch_size=8)
    assert predictor.settings["pooling"] == predictor.settings["padding"] == "parity"
    np.testing.assert_allclose(predictor.logits(MIXED)[0], predictor.logits(QUESTIONS[:1])[0], atol=1e-5)


def test_bfloat16_is_near(tmp_path: Path) -> None:
    path = str(save_choice_ckpt(tmp_path / "a.ckpt"))
    exact, near = (ChoicePredictor(path, device="cpu", precision=p).logits(QUESTIONS) for p in ("32", "bf16"))
    np.testing.assert_allclose(np.stack(near), np.stack(exact), atol=0.1)
    assert not np.array_equal(np.stack(near), np.stack(exact))


def test_embeddings_are_unit_vectors_in_the_order_of_the_texts(tmp_path: Path) -> None:
    predictor = ChoicePredictor(str(save_choice_ckpt(tmp_path / "a.ckpt")), device="cpu", batch_size=2)
    texts = ["Anna is in the kitchen.", "red", "Anna is in the kitchen.", "Who has a ball?"]
    found = predictor.embeddings(texts)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(found[0], found[2], atol=1e-5)
    hidden = predictor.model.encode(dict(predictor.tokenizer("red", return_tensors="pt")))
    wanted = torch.nn.functional.normalize(hidden.mean(1), dim=-1)[0]
    np.testing.assert_allclose(found[1], wanted.detach(), atol=1e-5)


def test_a_folder_has_a_random_head(tmp_path: Path) -> None:
    predictor = ChoicePredictor(str(save_folder(tmp_path / "folder")), device="cpu")
    assert len(predictor.logits(QUESTIONS)) == len(QUESTIONS)
    assert predictor.encoding == ChoiceEncoding()


def test_rows_fit_the_positions_of_a_folders_model(tmp_path: Path) -> None:
    short = {"vocab_size": 320, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = short | {"intermediate_size": 16, "max_position_embeddings": 16}
    backbone = Backbone(architecture="bert", checkpoint="random", config=config)
    start(backbone, SpanModel).to_pretrained().save_pretrained(tmp_path)
    build_tokenizer("bert", vocabulary()).save_pretrained(tmp_path)
    predictor = ChoicePredictor(str(tmp_path), device="cpu")
    assert predictor.encoding.max_length == 16
    assert len(predictor.logits(QUESTIONS)) == len(QUESTIONS)


def test_finished_work_of_another_tokenizer_is_not_taken_over(tmp_path: Path) -> None:
    folder = save_folder(tmp_path / "folder")
    first, again = (CheckpointChooser(ChoicePredictor(str(folder), device="cpu")) for _ in range(2))
    assert first.identity == again.identity
    build_tokenizer("bert", sorted(vocabulary(), reverse=True)).save_pretrained(folder)
    other = CheckpointChooser(ChoicePredictor(str(folder), device="cpu"))
    assert other.identity["weights"] == first.identity["weights"]
    assert other.identity != first.identity


def test_models_that_cannot_be_asked(tmp_path: Path) -> None:
    path = str(save_ckpt(tmp_path / "qa.ckpt"))
    with pytest.raises(ValueError, match=r"qa\.ckpt: the checkpoint answers questions about a text"):
        ChoicePredictor(path)
    choice = str(save_choice_ckpt(tmp_path / "choice.ckpt"))
    with pytest.raises(ValueError, match=r"choice\.ckpt: the checkpoint chooses among given choices"):
        Predictor(choice)
    with pytest.raises(ValueError, match="--batch-size"):
        ChoicePredictor(choice, batch_size=0)
    content = torch.load(choice, weights_only=True)
    content[KEY]["encoding"]["colour"] = "red"
    torch.save(content, choice)
    with pytest.raises(ValueError, match=r"choice\.ckpt: .*colour"):
        ChoicePredictor(choice)
