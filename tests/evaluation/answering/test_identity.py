"""An answerer's identity holds all that its answers depend on, and nothing else."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from interventune.evaluation.answering.interface import Ability, Choosing, open_answerer
from tests.data_modules.fixtures.tiny_language_models import save
from tests.evaluation.checkpoints import save_ckpt, save_folder, save_llama


def identity(path: object, need: Ability = "spans", **how: Any) -> dict[str, Any]:
    content = open_answerer(str(path), Choosing(**{"device": "cpu", **how}), need=need).identity
    assert json.loads(json.dumps(content)) == content, "plain JSON"
    return content


def test_identity_of_a_checkpoint_is_all_but_batches(tmp_path: Path) -> None:
    path, folder = save_ckpt(tmp_path / "a.ckpt"), save_folder(tmp_path / "a")
    one = identity(path)
    assert identity(save_ckpt(tmp_path / "b.ckpt"), batch_size=3) == one
    others = [
        identity(path, dtype="bfloat16"),
        identity(save_ckpt(tmp_path / "c.ckpt", seed=2)),
        identity(save_ckpt(tmp_path / "d.ckpt", max_length=64, doc_stride=32)),
    ]
    assert one not in others
    for name, value in {"layer_norm_eps": 0.1, "hidden_act": "relu"}.items():
        copy = changed(folder, "config.json", name, value, tmp_path / name)
        assert identity(copy) != identity(folder), name


@pytest.mark.parametrize("kind", ["hf:{}", "{}"])
def test_identity_of_a_language_model_is_its_settings_and_words(kind: str, tmp_path: Path) -> None:
    path = kind.format(save(tmp_path / "gpt2", "gpt2", chat="{{ messages[0].content }}"))
    one = identity(path, "choices")
    assert identity(path, "choices", batch_size=3) == one
    options = {"prompt": "unifiedqa", "choice_prompt": "letters", "likelihood": "sum"}
    options |= {"dtype": "bfloat16", "chat": "never"}
    for name, value in (*options.items(), ("max_new_tokens", 3)):
        assert identity(path, "choices", **{name: value}) != one, name
    save(tmp_path / "gpt2", "gpt2", chat="{{ messages[0].content }}", seed=3)
    assert identity(path, "choices") != one


CHANGES: dict[str, dict[str, Any]] = {
    "config.json": {
        "rms_norm_eps": 0.1,
        "rope_parameters": {"rope_type": "default", "rope_theta": 50.0},
        "hidden_act": "relu",
        "max_position_embeddings": 99,
        "eos_token_id": [1, 7],
    },
    "generation_config.json": {"eos_token_id": [1, 9]},
    "tokenizer_config.json": {"eos_token": "anna", "clean_up_tokenization_spaces": True},
    "interventune.json": {"encoding": {"prompts": {"turn": "{question}? {answer}!"}}},
}
"""Values that change answers, by file and field."""
VERSION = {"transformers_version": "4.0.0"}
SAME: dict[str, dict[str, Any]] = {
    "config.json": {"_name_or_path": "elsewhere", "architectures": None, **VERSION},
    "generation_config.json": {"do_sample": True, "temperature": 2.0, **VERSION},
    "tokenizer_config.json": {"name_or_path": "elsewhere", "is_local": False},
}
"""Values that do not."""


def changed(folder: Path, file: str, name: str, value: Any, to: Path) -> Path:
    """A copy of a folder with another value of one field."""
    shutil.copytree(folder, to)
    content = json.loads((to / file).read_text()) if (to / file).exists() else {}
    (to / file).write_text(json.dumps(content | {name: value}))
    return to


def test_whatever_changes_answers_changes_the_identity_and_nothing_else(tmp_path: Path) -> None:
    chat = "{% for m in messages %}{{ m.content }}{% endfor %}"
    ends = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 3}
    llama = save_llama(tmp_path / "llama", chat, **ends)
    one, places = identity(llama), (tmp_path / str(i) for i in range(99))
    for values, same in ((CHANGES, False), (SAME, True)):
        for file, fields in values.items():
            for name, value in fields.items():
                copy = changed(llama, file, name, value, next(places))
                assert (identity(copy) == one) == same, (file, name)
    word, space = ("tokenizer.json", '"attic"', '"garret"'), ("chat_template.jinja", "m.", "m . ")
    for file, old, new in (word, space):
        copy = Path(shutil.copytree(llama, next(places)))
        text = (copy / file).read_text()
        assert old in text
        (copy / file).write_text(text.replace(old, new))
        assert identity(copy) != one, file
    assert identity(f"hf:{llama}") == one
