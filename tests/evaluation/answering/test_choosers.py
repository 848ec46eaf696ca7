"""Checkpoints of multiple choice in batches of any size, and encoders that embed texts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from data_modules.batching.choice_set import ChoiceEncoding
from data_modules.schema.questions import ChoiceQuestion
from data_modules.sources import read_choices
from evaluation.answering.asking import Compute
from evaluation.answering.choice_checkpoint import ChoiceCheckpoint
from models.heads.choice import ChoiceModel, Pooling
from tests.evaluation.checkpoints import save_model, tiny_model

QUESTIONS = read_choices("stories:choices_dev")[:9]
MIXED = [
    *QUESTIONS,
    ChoiceQuestion("two", "Anna is in the kitchen.", ("kitchen", "garden"), 0),
    ChoiceQuestion("empty", "", ("red", "blue", "green", "white", "black"), 3),
    QUESTIONS[0],
]
CPU = Compute(device="cpu")


def save_choice_ckpt(
    path: Path, architecture: str = "bert", pooling: Pooling = "masked", **encoding: object
) -> Path:
    """A tiny model of multiple choice, as training saves it."""
    encoder = tiny_model(architecture).encoder
    model = ChoiceModel(encoder, architecture, pooling=pooling, generator=torch.Generator().manual_seed(0))
    return save_model(path, model, ChoiceEncoding(**encoding))  # type: ignore[arg-type]


def test_choice_logits_do_not_depend_on_batches(tmp_path: Path) -> None:
    path = str(save_choice_ckpt(tmp_path / "a.ckpt", "xlnet"))  # which pads on the left
    one, many = (ChoiceCheckpoint(path, replace(CPU, batch_size=size)) for size in (1, 100))
    for example, logits, alone in zip(
        MIXED, many.choice_logits(MIXED), one.choice_logits(MIXED), strict=True
    ):
        assert len(logits) == len(example.choices)
        np.testing.assert_allclose(logits, alone, atol=1e-5)
    assert one.choice_logits([]) == []


def test_embeddings_are_unit_vectors_in_the_order_of_the_texts(tmp_path: Path) -> None:
    checkpoint = ChoiceCheckpoint(str(save_choice_ckpt(tmp_path / "a.ckpt")), replace(CPU, batch_size=2))
    texts = ["Anna is in the kitchen.", "red", "Anna is in the kitchen.", "Who has a ball?"]
    found = checkpoint.embeddings(texts)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(found[0], found[2], atol=1e-5)
    hidden = checkpoint.model.encode(dict(checkpoint.tokenizer("red", return_tensors="pt")))
    wanted = torch.nn.functional.normalize(hidden.mean(1), dim=-1)[0]
    np.testing.assert_allclose(found[1], wanted.detach(), atol=1e-5)
