"""Malformed checkpoints, Hugging Face folders and caches of generated sentences."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from data_modules.__main__ import main as data_command
from evaluation.__main__ import main as evaluation_command
from models.__main__ import main as models_command
from models.checkpoint import KEY
from tests.evaluation.checkpoints import save_folder
from tests.malformed.documents import FORMATS
from tests.malformed.outcome import everything_in, outcome, refused

Content = dict[str, Any]


@pytest.fixture(scope="module")
def content(given: Path) -> Content:
    content: Content = torch.load(given / "bert.ckpt", weights_only=True)
    return content


def ask(path: Path, out: Path) -> list[str]:
    question = ["--context", "The café was red.", "--question", "Which?", "--device", "cpu"]
    return ["ask", "--checkpoint", str(path), *question, "--output", str(out)]


def check(path: Path, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both commands that read a checkpoint refuse this one, and write nothing."""
    out = tmp_path / "out"
    for main, arguments in (
        (evaluation_command, ask(path, out)),
        (models_command, ["export", str(path), str(out)]),
    ):
        refused(outcome(main, arguments, capsys), path.name, told)
        assert not out.exists()
        assert not [name for name in everything_in(tmp_path) if name.endswith((".tmp", ".old"))]


def _about(**changed: Any) -> Callable[[Content], Content]:
    return lambda content: {**content, KEY: {**content[KEY], **changed}}


def _weights(change: Callable[[str, torch.Tensor], Any]) -> Callable[[Content], Content]:
    return lambda content: {
        **content,
        "state_dict": {name: change(name, value) for name, value in content["state_dict"].items()},
    }


def _tokenizer(text: str) -> Callable[[Content], Content]:
    return lambda content: _about(tokenizer=dict.fromkeys(content[KEY]["tokenizer"], text))(content)


def _of_config(**changed: Any) -> Callable[[Content], Content]:
    return lambda content: _about(config=json.dumps(json.loads(content[KEY]["config"]) | changed))(content)


def _without(part: str) -> Callable[[Content], Content]:
    return lambda content: {**content, KEY: {k: v for k, v in content[KEY].items() if k != part}}


PARTS = ("format", "architecture", "config", "tokenizer", "encoding")
CHANGES: dict[str, tuple[Callable[[Content], Any], str]] = {
    **{f"no {part}": (_without(part), part) for part in PARTS},
    **{f"{part} a list": (_about(**{part: ["x"]}), part) for part in (*PARTS, "heads", "head_options")},
    "a list": (lambda content: [content], "not a checkpoint"),
    "of somebody else": (lambda content: {"state_dict": content["state_dict"]}, KEY),
    "no weights": (lambda content: {k: v for k, v in content.items() if k != "state_dict"}, "state_dict"),
    "weights are numbers": (_weights(lambda name, value: 3), "weights"),
    "weights of another shape": (_weights(lambda name, value: value[..., :1]), "size mismatch"),
    "another format": (_about(format=99), "format 99"),
    "another architecture": (_about(architecture="gpt"), "gpt"),
    "other heads": (_about(heads="antlers"), "antlers"),
    "unknown options of heads": (_about(head_options={"antlers": 2}), "antlers"),
    "configuration cut off": (lambda c: _about(config=c[KEY]["config"][:-20])(c), "config"),
    "configuration nested": (_about(config="[" * 100_000), "config"),
    "size a text": (_of_config(hidden_size="large"), "hidden_size"),
    "no words": (_of_config(vocab_size=0), "bad.ckpt"),
    "unknown encoding": (_about(encoding={"antlers": 1}), "antlers"),
    "tokenizer not JSON": (_tokenizer("{"), "tokenizer"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_content(name: str, content: Content, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change, told = CHANGES[name]
    path, out = tmp_path / "bad.ckpt", tmp_path / "out"
    torch.save(change(content), path)
    if told == "tokenizer" or "encoding" in name:
        refused(outcome(evaluation_command, ask(path, out), capsys), told)
        assert not out.exists()
    else:
        check(path, told, tmp_path, capsys)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.999])
def test_a_checkpoint_cut_off(
    share: float, given: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = (given / "bert.ckpt").read_bytes()
    path = tmp_path / "bad.ckpt"
    path.write_bytes(raw[: int(len(raw) * share)])
    check(path, "not a readable checkpoint", tmp_path, capsys)


@pytest.mark.parametrize("raw", [b"garbage" * 99, b"PK\x03\x04" + bytes(900), b"\x80\x02."])
def test_bytes_that_are_no_checkpoint(raw: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.ckpt"
    path.write_bytes(raw)
    check(path, "not a readable checkpoint", tmp_path, capsys)


class Trap:
    """What unpickling would run."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch trapped",)


def test_a_checkpoint_never_runs_code(
    content: Content, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "bad.ckpt"
    torch.save({**content, "extra": Trap()}, path)
    check(path, "not a readable checkpoint", tmp_path, capsys)
    assert not (tmp_path / "trapped").exists()


def _cut(name: str, share: float) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        raw = (folder / name).read_bytes()
        (folder / name).write_bytes(raw[: int(len(raw) * share)])

    return change


def _removed(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def _config(**changed: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        content = json.loads((folder / "config.json").read_text())
        content = {k: v for k, v in (content | changed).items() if v is not ...}
        (folder / "config.json").write_text(json.dumps(content))

    return change


def _text(name: str, text: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).write_text(text)

    return change


FOLDERS: dict[str, tuple[Callable[[Path], None], str]] = {
    "no config": (_removed("config.json"), "bad"),
    "config cut off": (_cut("config.json", 0.5), "config.json"),
    "config nested": (_text("config.json", "[" * 100_000), "config.json"),
    "no model type": (_config(model_type=...), "model_type"),
    "unknown model type": (_config(model_type="gpt9"), "gpt9"),
    "model type of no row": (_config(model_type="gpt2"), "gpt2"),
    "size a text": (_config(hidden_size="large"), "hidden_size"),
    "another size": (_config(hidden_size=48, num_attention_heads=4), "bad"),
    "no weights": (_removed("model.safetensors"), "model.safetensors"),
    "weights cut off": (_cut("model.safetensors", 0.5), "bad"),
    "no tokenizer": (_removed("tokenizer.json"), "tokenizer"),
    "tokenizer cut off": (_cut("tokenizer.json", 0.5), "tokenizer"),
    "settings of the tokenizer cut off": (_cut("tokenizer_config.json", 0.5), "tokenizer"),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change, told = FOLDERS[name]
    folder, out = tmp_path / "bad", tmp_path / "out"
    save_folder(folder)
    change(folder)
    refused(outcome(evaluation_command, ask(folder, out), capsys), str(folder), told)
    assert not out.exists()


LINE = json.dumps({"key": "k", "text": "t"})
CACHES: dict[str, tuple[bytes, str]] = {
    "not JSON": (b"hello\n", "line 1"),
    "of another kind": (b'{"a": 1}\n', "key"),
    "no text": (b'{"key": "k"}\n', "text"),
    "a line cut off inside": (LINE[:9].encode() + b"\n" + LINE.encode() + b"\n", "line 1"),
    "zeros": (LINE.encode() + b"\n" + bytes(64) + b"\n", "line 2"),
    "nested": (b"[" * 100_000 + b"\n", "line 1"),
}


@pytest.mark.parametrize("name", CACHES)
def test_a_cache(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw, told = CACHES[name]
    cache, data = tmp_path / "cache.jsonl", tmp_path / "squad.json"
    cache.write_bytes(raw)
    (squad,) = (form.text for form in FORMATS if form.name == data.name)
    data.write_text(squad)
    arguments = ["perturb", "--dataset", "squad", "--input", str(data), "--variant", "os_r_aug"]
    arguments += ["--generator", "openai:x@http://127.0.0.1:9/v1", "--cache", str(cache)]
    found = outcome(data_command, [*arguments, "--output", str(tmp_path / "out")], capsys)
    refused(found, "cache.jsonl", told)
    assert everything_in(tmp_path).keys() == {"cache.jsonl", "squad.json"}
    assert cache.read_bytes() == raw
