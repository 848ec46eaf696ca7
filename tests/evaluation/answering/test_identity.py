"""An answerer's identity holds all that its answers depend on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evaluation.answering.interface import Ability, Choosing
from evaluation.answering.open import open_answerer
from tests.data_modules.fixtures.tiny_language_models import save
from tests.evaluation.checkpoints import save_ckpt


def identity(path: object, need: Ability = "spans", **how: Any) -> dict[str, Any]:
    found = open_answerer(str(path), Choosing(**{"device": "cpu", **how}), need=need).identity
    assert json.loads(json.dumps(found)) == found, "plain JSON"
    return found


def test_identity_of_a_checkpoint_is_all_but_batches(tmp_path: Path) -> None:
    path = save_ckpt(tmp_path / "a.ckpt")
    one = identity(path)
    assert identity(save_ckpt(tmp_path / "b.ckpt"), batch_size=3) == one
    others = [
        identity(path, dtype="bfloat16"),
        identity(path, max_new_tokens=3),
        identity(save_ckpt(tmp_path / "c.ckpt", seed=2)),
        identity(save_ckpt(tmp_path / "d.ckpt", max_length=64, doc_stride=32)),
    ]
    assert one not in others


@pytest.mark.parametrize("kind", ["hf:{}", "{}"])
def test_identity_of_a_language_model_is_its_settings_and_wordings(kind: str, tmp_path: Path) -> None:
    path = kind.format(save(tmp_path / "gpt2", "gpt2", chat="{{ messages[0].content }}"))
    one = identity(path, "choices")
    assert identity(path, "choices", batch_size=3) == one
    options = {"prompt": "unifiedqa", "choice_prompt": "letters", "likelihood": "sum", "dtype": "bfloat16"}
    for name, value in (options | {"max_new_tokens": 3, "chat": "never"}).items():
        assert identity(path, "choices", **{name: value}) != one, name
    save(tmp_path / "gpt2", "gpt2", chat="{{ messages[0].content }}", seed=3)
    assert identity(path, "choices") != one
