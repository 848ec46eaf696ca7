"""Every place that a tokenizer comes from, and what is said when there is none."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig

from interventune.data_modules.encoding.tokenizers import load_tokenizer, tokenizer_files
from interventune.data_modules.stories.word_tokenizer import build_tokenizer
from interventune.storage.errors import DataError
from tests.data_modules.fixtures.small_tokenizers import KINDS, tokenizer


def encoded(tok: Any) -> dict[str, Any]:
    texts = "Who was rude?", "A Velan baker met a Kessar, and it isn't far. tol"
    return dict(tok(*texts, return_offsets_mapping=True, return_token_type_ids=True))


@pytest.mark.parametrize("kind", KINDS)
def test_a_tokenizer_survives_being_stored(kind: str, tmp_path: Path) -> None:
    tok = tokenizer(kind)
    files = tokenizer_files(tok)
    tok.save_pretrained(tmp_path)
    torch.save({"interventune": {"tokenizer": files}}, tmp_path / "last.ckpt")
    for source in (files, str(tmp_path), str(tmp_path / "last.ckpt")):
        again = load_tokenizer(source)
        assert encoded(again) == encoded(tok)
        for name in ("padding_side", "pad_token_id", "cls_token_id"):
            assert getattr(again, name) == getattr(tok, name)
        assert tokenizer_files(again)["tokenizer.json"] == files["tokenizer.json"]


def test_stored_files_do_not_depend_on_what_was_tokenised_last() -> None:
    """The backend remembers the truncation of its last call and would store it."""
    tok = build_tokenizer("bert", ["who"])
    before = tokenizer_files(tok)
    tok("who " * 90, "who " * 90, truncation="only_second", max_length=200, stride=7, padding=True)
    assert tokenizer_files(tok) == before


@pytest.mark.parametrize("model_type", ["bert", "deberta-v2"])
def test_a_model_without_a_tokenizer_is_refused(model_type: str, tmp_path: Path) -> None:
    """transformers 5 would silently build a tokenizer that knows no word."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    with pytest.raises(DataError, match="has no vocabulary"):
        load_tokenizer(str(tmp_path))


def test_what_is_no_tokenizer_is_named_in_one_line(tmp_path: Path) -> None:
    BertConfig().save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": 3}')
    for source in (str(tmp_path), "/no/such/folder", "no-such-user/no-such-model", "nothing.ckpt"):
        with pytest.raises(DataError, match=rf"^.*{source}.*\Z"):
            load_tokenizer(source)


def test_code_of_a_folder_is_never_run_nor_asked_for(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("raise SystemExit('it ran')")
    classes: Any = {"auto_map": {"AutoTokenizer": [None, "own.Own"], "AutoConfig": "own.Config"}}
    classes |= {"model_type": "own", "tokenizer_class": "Own"}
    for name in ("config.json", "tokenizer_config.json"):
        (tmp_path / name).write_text(json.dumps(classes))
    with pytest.raises(DataError, match=str(tmp_path)):
        load_tokenizer(str(tmp_path))
