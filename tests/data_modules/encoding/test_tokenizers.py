"""Every place that a tokenizer comes from, and what is said when there is none."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig

from data_modules.encoding.tokenizers import load_tokenizer, tokenizer_files
from data_modules.stories.questions import qa_examples
from data_modules.stories.word_tokenizer import build_tokenizer
from storage.errors import DataError
from tests.data_modules.fixtures.small_tokenizers import KINDS, WORD_LEVEL, tokenizer

TEXTS = ("Who was rude?", "A Velan baker met a Kessar, and it isn't far. tol")


def encoded(tok: Any) -> dict[str, Any]:
    return dict(tok(*TEXTS, return_offsets_mapping=True, return_token_type_ids=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["files", "folder", "checkpoint"])
def test_a_tokenizer_survives_being_stored(kind: str, way: str, tmp_path: Path) -> None:
    tok = tokenizer(kind)
    files = tokenizer_files(tok)
    assert all(isinstance(text, str) for text in files.values())
    if way == "files":
        again = load_tokenizer(files)
    elif way == "folder":
        tok.save_pretrained(tmp_path)
        again = load_tokenizer(str(tmp_path))
    else:
        torch.save({"interventune": {"tokenizer": files}}, tmp_path / "last.ckpt")
        again = load_tokenizer(str(tmp_path / "last.ckpt"))
    assert encoded(again) == encoded(tok)
    assert again.padding_side == tok.padding_side
    assert again.pad_token_id == tok.pad_token_id
    assert again.cls_token_id == tok.cls_token_id
    assert tokenizer_files(again)["tokenizer.json"] == files["tokenizer.json"]


def test_stored_files_do_not_depend_on_what_was_tokenised_last() -> None:
    """The backend remembers the truncation of its last call and would store it."""
    tok = build_tokenizer("bert", ["who"])
    before = tokenizer_files(tok)
    tok("who " * 90, "who " * 90, truncation="only_second", max_length=200, stride=7, padding=True)
    assert tokenizer_files(tok) == before


@pytest.mark.parametrize("architecture", WORD_LEVEL)
def test_the_embedded_words(architecture: str) -> None:
    tok = load_tokenizer("stories", architecture)
    for example in islice(qa_examples("dev"), 5):
        assert tok.unk_token_id not in tok(example.question, example.context)["input_ids"]
    with pytest.raises(ValueError, match=r"'electra'.*bert, roberta, xlnet"):
        load_tokenizer("stories", "electra")


@pytest.mark.parametrize("model_type", ["bert", "roberta", "xlnet", "distilbert", "deberta-v2"])
def test_a_model_without_a_tokenizer_is_refused(model_type: str, tmp_path: Path) -> None:
    """transformers 5 would silently build a tokenizer that knows no word."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    with pytest.raises(DataError, match="has no vocabulary") as caught:
        load_tokenizer(str(tmp_path))
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("content", ["{", "{}", '{"model": 3}', "[]"])
def test_broken_files_are_named(content: str, tmp_path: Path) -> None:
    BertConfig().save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(DataError) as caught:
        load_tokenizer(str(tmp_path))
    assert str(caught.value).startswith(f"tokenizer '{tmp_path}': ")
    assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match="inside the checkpoint"):
        load_tokenizer({"tokenizer.json": content})


@pytest.mark.parametrize("source", ["/no/such/folder", "no-such-user/no-such-model", "nothing.ckpt"])
def test_nothing_there_is_one_line(source: str) -> None:
    with pytest.raises(DataError) as caught:
        load_tokenizer(source)
    assert source in str(caught.value)
    assert "\n" not in str(caught.value)
