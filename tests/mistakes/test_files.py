"""Damaged files, checkpoints and folders are read, or named in one line; none runs code."""

import copy
import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save

from interventune.models.checkpoint import KEY
from tests.evaluation.checkpoints import save_folder
from tests.mistakes.conftest import GIVEN, everything_in, outcome, refused

PERTURB = "data perturb --variant os --input {file} --output {out}/x"
PREDICTED = "evaluation bias --predictions {file} --output {out}/x"
ABSENT = "--checkpoint no-such.ckpt --output {out}/x"
COMMANDS = dict.fromkeys(("squad.json", "coqa.json", "hotpotqa.json", "rows.jsonl"), PERTURB)
COMMANDS |= {"lei.json": PREDICTED, "unqover.json": PREDICTED}
COMMANDS |= {"pairs.jsonl": f"evaluation negation --pairs {{file}} {ABSENT}"}
COMMANDS |= {"piqa.jsonl": f"evaluation confusion --input {{file}} {ABSENT}"}
BYTES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda raw: b"",
    "cut off": lambda raw: raw[: len(raw) // 3],
    "cut near its end": lambda raw: raw[:-4],
    "utf-16": lambda raw: raw.decode().encode("utf-16"),
    "gzip": lambda raw: b"\x1f\x8b\x08" + bytes(90),
    "a zero inside": lambda raw: raw[:20] + b"\0" + raw[20:],
    "latin-1": lambda raw: raw.decode().encode("latin-1", "replace"),
    "nested": lambda raw: b"[" * 100_000,
    "half of a surrogate pair": lambda raw: raw.decode().replace("é", "\\ud83d").encode(),
}
VALUES: list[Any] = [None, 7, 1.5, True, "x", ["x"], {"x": 1}, ...]
"""`...` leaves the field out."""
Content = dict[str, Any]


def places(document: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The place of every field, of the first element of each list."""
    items = list(document.items())[:9] if isinstance(document, dict) else []
    items = list(enumerate(document[:1])) if isinstance(document, list) else items
    for key, value in items:
        yield (*above, key)
        yield from places(value, (*above, key))


@st.composite
def changed_files(draw: st.DrawFn) -> tuple[str, bytes]:
    """A format, and a file of it with one change."""
    name = draw(st.sampled_from(sorted(COMMANDS)))
    raw = (GIVEN / name).read_bytes()
    if draw(st.booleans()):
        return name, BYTES[draw(st.sampled_from(sorted(BYTES)))](raw)
    lines = name.endswith(".jsonl")
    document = [json.loads(line) for line in raw.splitlines()] if lines else json.loads(raw)
    *above, last = draw(st.sampled_from(list(places(document))))
    parent = document = copy.deepcopy(document)
    for key in above:
        parent = parent[key]
    parent[last] = draw(st.sampled_from(VALUES))
    if parent[last] is ...:
        del parent[last]
    return name, ("\n".join(map(json.dumps, document)) if lines else json.dumps(document)).encode()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(changed_files())
def test_a_changed_file_is_read_or_named(tmp_path_factory: Any, changed: tuple[str, bytes]) -> None:
    name, content = changed
    folder: Path = tmp_path_factory.mktemp("changed")
    (folder / f"bad_{name}").write_bytes(content)
    before = everything_in(folder)
    places = {"file": folder / f"bad_{name}", "out": folder}
    entry, *arguments = (word.format(**places) for word in COMMANDS[name].split())
    code, errors = outcome(entry, arguments)
    if code == 0 or "no-such.ckpt" in errors:
        return
    refused(entry, arguments, f"bad_{name}")
    assert everything_in(folder) == before


def check(path: Path, *named: str) -> None:
    """Evaluation and export refuse it."""
    output = str(path.parent / "out")
    ask = f"ask --context Café. --question Which? --device cpu --output {output} --checkpoint"
    refused("evaluation", [*ask.split(), str(path)], path.name, *named)
    if path.is_file():
        refused("models", [str(path), f"{output}/folder"], path.name, *named)
    assert not (path.parent / "out").exists()
    assert not (path.parent / "trapped").exists()


class Trap:
    """What unpickling would run."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch trapped",)


def spoiled(weights: dict[str, torch.Tensor], value: float) -> dict[str, torch.Tensor]:
    name = list(weights)[-1]
    changed = weights[name].clone()
    changed.view(-1)[-1] = value
    return weights | {name: changed}


CONTENTS: dict[str, tuple[Callable[[Content], Any], str]] = {
    "a list": (lambda c: [c], "no checkpoint of this version"),
    "of another program": (lambda c: {"state_dict": c["state_dict"]}, KEY),
    "no weights": (lambda c: {KEY: c[KEY]}, "weights"),
    "another architecture": (lambda c: c | {KEY: c[KEY] | {"architecture": "gpt"}}, "gpt"),
    "other heads": (lambda c: c | {KEY: c[KEY] | {"heads": "antlers"}}, "antlers"),
    "weights of another shape": (
        lambda c: c | {"state_dict": {key: x[..., :1] for key, x in c["state_dict"].items()}},
        "size mismatch",
    ),
    "code that runs": (lambda c: c | {"extra": Trap()}, "no readable checkpoint"),
    "NaN": (lambda c: c | {"state_dict": spoiled(c["state_dict"], math.nan)}, "not finite"),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_a_checkpoint_with_other_contents_is_refused(
    name: str, given_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    change, named = CONTENTS[name]
    content = torch.load(given_files / "bert.ckpt", weights_only=True)
    torch.save(change(content), tmp_path / "bad.ckpt")
    check(tmp_path / "bad.ckpt", named)


def test_damaged_bytes_are_refused(given_files: Path, tmp_path: Path) -> None:
    raw = (given_files / "bert.ckpt").read_bytes()
    for damaged in (b"", raw[: len(raw) // 3], b"garbage" * 99):
        (tmp_path / "bad.ckpt").write_bytes(damaged)
        check(tmp_path / "bad.ckpt")


def config(**changed: Any) -> Callable[[bytes], bytes]:
    return lambda raw: json.dumps(json.loads(raw) | changed).encode()


FILES = ("config.json", "model.safetensors", "tokenizer.json")
DAMAGES: list[Any] = [(name, how, "") for how in (None, BYTES["cut off"]) for name in FILES]
DAMAGES += [("config.json", config(model_type="gpt9"), "")]
DAMAGES += [("config.json", config(hidden_size=48, num_attention_heads=4), "")]
INFINITE = lambda raw: save(spoiled(load(raw), math.inf), {"format": "pt"})  # noqa: E731
DAMAGES += [("model.safetensors", INFINITE, "not finite")]


@pytest.mark.parametrize(("file", "change", "named"), DAMAGES)
def test_a_damaged_folder_is_refused(
    file: str, change: Callable[[bytes], bytes] | None, named: str, tmp_path: Path
) -> None:
    path = save_folder(tmp_path / "bad") / file
    raw = path.read_bytes()
    path.unlink()
    if change is not None:
        path.write_bytes(change(raw))
    check(path.parent, named)
