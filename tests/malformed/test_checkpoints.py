"""Malformed checkpoints, Hugging Face folders and caches of generated sentences."""

from __future__ import annotations

import io
import json
import math
import os
import shutil
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from evaluation.__main__ import main as evaluation_command
from models.__main__ import main as models_command
from models.backbones import Backbone, CheckpointError
from models.checkpoint import KEY, start
from models.heads.span import SpanModel
from models.language.local_model import LocalTextModel
from tests.evaluation.checkpoints import save_folder

Content = dict[str, Any]
Refuse = Callable[..., None]


@pytest.fixture(scope="module")
def content(given: Path) -> Content:
    content: Content = torch.load(given / "bert.ckpt", weights_only=True)
    return content


def ask(path: Path) -> list[str]:
    question = ["--context", "The café was red.", "--question", "Which?", "--device", "cpu"]
    return ["ask", "--checkpoint", str(path), *question, "--output", str(path.parent / "out")]


def check(path: Path, told: str, refuse: Refuse) -> None:
    """Both commands that read a checkpoint refuse this one."""
    refuse(evaluation_command, ask(path), path.name, told)
    refuse(models_command, ["export", str(path), str(path.parent / "out")], path.name, told)


def edited(text: str, **changed: Any) -> str:
    """A JSON object with other values; `...` takes one away."""
    content = json.loads(text) | changed
    return json.dumps({key: value for key, value in content.items() if value is not ...})


PARTS = ("format", "architecture", "config", "tokenizer", "encoding")
ABOUT: dict[str, tuple[Callable[[Content], Content], str]] = {
    # what takes the place of what a checkpoint says about itself, and what the message names
    **{f"no {part}": (lambda _, part=part: {part: ...}, part) for part in PARTS},
    **{
        f"{part} a list": (lambda _, part=part: {part: ["x"]}, part)
        for part in (*PARTS, "heads", "head_options")
    },
    "another format": (lambda _: {"format": 99}, "format 99"),
    "another architecture": (lambda _: {"architecture": "gpt"}, "gpt"),
    "other heads": (lambda _: {"heads": "antlers"}, "antlers"),
    "unknown options of heads": (lambda _: {"head_options": {"antlers": 2}}, "antlers"),
    "configuration cut off": (lambda about: {"config": about["config"][:-20]}, "config"),
    "configuration nested": (lambda _: {"config": "[" * 100_000}, "config"),
    "size a text": (lambda about: {"config": edited(about["config"], hidden_size="large")}, "hidden_size"),
    "no words": (lambda about: {"config": edited(about["config"], vocab_size=0)}, "bad.ckpt"),
    "unknown encoding": (lambda _: {"encoding": {"antlers": 1}}, "antlers"),
    "tokenizer not JSON": (lambda about: {"tokenizer": dict.fromkeys(about["tokenizer"], "{")}, "tokenizer"),
}


@pytest.mark.parametrize("name", ABOUT)
def test_what_it_says_of_itself(name: str, content: Content, tmp_path: Path, refuse: Refuse) -> None:
    """A checkpoint with other words about itself"""
    change, told = ABOUT[name]
    about = content[KEY] | change(content[KEY])
    path = tmp_path / "bad.ckpt"
    torch.save({**content, KEY: {key: part for key, part in about.items() if part is not ...}}, path)
    if "tokenizer" in name or "encoding" in name:  # export copies both as they are
        refuse(evaluation_command, ask(path), told)
    else:
        check(path, told, refuse)


class Trap:
    """What unpickling would run."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch trapped",)


CONTENTS: dict[str, tuple[Callable[[Content], Any], str]] = {
    "a list": (lambda content: [content], "not a checkpoint"),
    "of somebody else": (lambda content: {"state_dict": content["state_dict"]}, KEY),
    "no weights": (lambda content: {KEY: content[KEY]}, "state_dict"),
    "weights are numbers": (lambda c: c | {"state_dict": dict.fromkeys(c["state_dict"], 3)}, "weights"),
    "weights of another shape": (
        lambda c: c | {"state_dict": {name: value[..., :1] for name, value in c["state_dict"].items()}},
        "size mismatch",
    ),
    "code that runs": (lambda content: content | {"extra": Trap()}, "not a readable checkpoint"),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_what_it_holds(
    name: str, content: Content, tmp_path: Path, refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint with other contents, or with code that would run"""
    monkeypatch.chdir(tmp_path)
    change, told = CONTENTS[name]
    torch.save(change(content), tmp_path / "bad.ckpt")
    check(tmp_path / "bad.ckpt", told, refuse)


def flipped(raw: bytes, seed: int) -> bytes:
    """20,000 bytes changed, as a bad disk does, anywhere in a file that would load."""
    found, draw = np.frombuffer(raw, dtype=np.uint8).copy(), np.random.default_rng(seed)
    found[draw.choice(len(raw), 20_000, replace=False)] ^= draw.integers(1, 256, 20_000, dtype=np.uint8)
    return found.tobytes()


def one_flipped_bit(raw: bytes, where: str) -> bytes:
    found = bytearray(raw)
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        (pickled,) = (entry for entry in archive.infolist() if entry.filename.endswith("data.pkl"))
        weights = max(archive.infolist(), key=lambda entry: entry.file_size)
        places = {name: e.header_offset + 200 for name, e in (("weights", weights), ("pickle", pickled))}
        found[(places | {"directory": archive.start_dir + 17})[where]] ^= 4
    return bytes(found)


Raw = Callable[[bytes], bytes | None]
BYTES: dict[str, Callable[[bytes], bytes]] = {
    "that is empty": lambda raw: b"",
    "that was cut off": lambda raw: raw[: len(raw) // 3],
    "without its last bytes": lambda raw: raw[:-99],
    "that is text": lambda raw: b"garbage" * 99,
    "that is another archive": lambda raw: b"PK\x03\x04" + bytes(900),
    "that is another pickle": lambda raw: b"\x80\x02.",
    **{f"with 20,000 flipped bytes ({seed})": partial(flipped, seed=seed) for seed in range(3)},
    **{
        f"with a flipped bit in its {part}": partial(one_flipped_bit, where=part)
        for part in ("weights", "pickle", "directory")
    },
}


@pytest.mark.parametrize("name", BYTES)
def test_bytes_that_are_no_checkpoint(name: str, given: Path, tmp_path: Path, refuse: Refuse) -> None:
    """A checkpoint {name}"""
    path = tmp_path / "bad.ckpt"
    path.write_bytes(BYTES[name]((given / "bert.ckpt").read_bytes()))
    check(path, "is damaged" if "bit" in name else "not a readable checkpoint", refuse)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_weights_that_are_no_numbers(value: float, content: Content, tmp_path: Path, refuse: Refuse) -> None:
    """A weight that is {value}"""
    name = list(content["state_dict"])[-1]
    weights = content["state_dict"] | {name: content["state_dict"][name].clone()}
    weights[name].view(-1)[-1] = value
    path = tmp_path / "bad.ckpt"
    torch.save(content | {"state_dict": weights}, path)
    check(path, "1 of|not finite numbers", refuse)
    folder = save_folder(tmp_path / "folder")
    tensors = load_file(folder / "model.safetensors")
    tensors[next(iter(tensors))].view(-1)[0] = value
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    refuse(evaluation_command, ask(folder), str(folder), "not finite numbers")
    for start_from in (path, folder):
        with pytest.raises(CheckpointError, match="not finite numbers"):
            start(Backbone(architecture="bert", checkpoint=str(start_from)), SpanModel)


def test_finite_weights_whose_logits_overflow(
    content: Content, given: Path, tmp_path: Path, refuse: Refuse
) -> None:
    """Finite weights whose logits overflow"""
    weights = {
        name: value * 3e38 if "span_head" in name else value for name, value in content["state_dict"].items()
    }
    torch.save(content | {"state_dict": weights}, tmp_path / "bad.ckpt")
    groups = ["--data", str(given / "groups.json"), "--output", str(tmp_path / "out")]
    for command in (
        ask(tmp_path / "bad.ckpt"),
        ["bias", "--checkpoint", str(tmp_path / "bad.ckpt"), *groups],
    ):
        refuse(evaluation_command, [*command, "--device", "cpu"], "bad.ckpt", "not finite numbers")


@pytest.mark.parametrize(("value", "told"), [(math.nan, "weights are not finite"), (3e38, "gives logits")])
def test_a_language_model_of_no_numbers(value: float, told: str, given: Path, tmp_path: Path) -> None:
    """A language model with a weight that is {value}"""
    folder = tmp_path / "model"
    shutil.copytree(given / "model", folder)
    tensors = load_file(folder / "model.safetensors")
    tensors[next(name for name in tensors if name.endswith("ln_f.weight"))].fill_(value)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match=f"hf:{folder}: .*{told}"):
        list(LocalTextModel(str(folder), max_new_tokens=2, device="cpu").complete(["red", "red one"]))


def half(raw: bytes) -> bytes:
    return raw[: len(raw) // 2]


def config(**changed: Any) -> Raw:
    return lambda raw: edited(raw.decode(), **changed).encode()


FOLDERS: dict[str, tuple[str, Raw, str]] = {
    # a file, what it holds instead (None: it is gone), and what the message names
    "no config": ("config.json", lambda raw: None, "bad"),
    "config cut off": ("config.json", half, "config.json"),
    "config nested": ("config.json", lambda raw: b"[" * 100_000, "config.json"),
    "no model type": ("config.json", config(model_type=...), "model_type"),
    "unknown model type": ("config.json", config(model_type="gpt9"), "gpt9"),
    "model type of no row": ("config.json", config(model_type="gpt2"), "gpt2"),
    "size a text": ("config.json", config(hidden_size="large"), "hidden_size"),
    "another size": ("config.json", config(hidden_size=48, num_attention_heads=4), "bad"),
    "no weights": ("model.safetensors", lambda raw: None, "model.safetensors"),
    "weights cut off": ("model.safetensors", half, "bad"),
    "no tokenizer": ("tokenizer.json", lambda raw: None, "tokenizer"),
    "tokenizer cut off": ("tokenizer.json", half, "tokenizer"),
    "settings of the tokenizer cut off": ("tokenizer_config.json", half, "tokenizer"),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder(name: str, tmp_path: Path, refuse: Refuse) -> None:
    """A damaged Hugging Face folder"""
    file, change, told = FOLDERS[name]
    path = save_folder(tmp_path / "bad") / file
    changed = change(path.read_bytes())
    path.unlink()
    if changed is not None:
        path.write_bytes(changed)
    refuse(evaluation_command, ask(path.parent), str(path.parent), told)
