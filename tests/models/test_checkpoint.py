"""Checkpoints that stand on their own, what may start from what, and one line about what cannot be used."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel, AutoModelForQuestionAnswering, GPT2Config

from models.backbones import ARCHITECTURES, Backbone, CheckpointError, load_pretrained
from models.checkpoint import HEADS, KEY, START_FROM, describe, fingerprint, inspect, load, start
from models.export import export
from models.heads.answers import RationaleModel
from models.heads.choice import ChoiceModel
from models.heads.encoder import EncoderModel
from models.heads.span import QAModel, SpanModel
from models.heads.xlnet import XLNetModel
from tests.models.tiny import (
    ENCODING,
    MODELS,
    NAMES,
    TOKENIZER,
    asked,
    backbone,
    content,
    model,
    rows,
    save,
    tensors,
)


def told(path: Path | str, load_it: Callable[[], object] | None = None) -> str:
    """What the user reads about `path`: one line that names it."""
    with pytest.raises(CheckpointError) as caught:
        (load_it or (lambda: load(str(path), EncoderModel)))()
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


def at(path: Path | str, name: str = "bert", **changes: Any) -> Backbone:
    return Backbone(architecture=name, checkpoint=str(path), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "heads"), MODELS)
@torch.no_grad()
def test_a_checkpoint_stands_alone(name: str, heads: str, tmp_path: Path) -> None:
    built = model(name, heads)
    path = save(tmp_path, built)
    info, loaded = inspect(str(path)), load(str(path), ChoiceModel if heads == "choice" else QAModel)
    assert (info.architecture, info.heads, info.step) == (name, heads, 12)
    assert (info.tokenizer, info.encoding) == (loaded.tokenizer, loaded.encoding) == (TOKENIZER, ENCODING)
    assert type(loaded.model) is type(built)
    assert not loaded.model.training
    assert fingerprint(loaded.model) == fingerprint(built)
    one, two = built.config.to_dict(), loaded.model.config.to_dict()
    assert {key: two[key] for key in one} == one
    call = asked(built, [12, 7], width=16)
    for found, wanted in zip(tensors(loaded.model(*call)), tensors(built(*call)), strict=True):
        assert torch.equal(found, wanted)
    again = start(at(path, name), HEADS[heads])
    assert again.training
    assert fingerprint(again) == fingerprint(built)


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_a_folder_gives_a_span_model(name: str, tmp_path: Path) -> None:
    qa, inputs = model(name), rows([12, 7])
    qa.to_pretrained().save_pretrained(tmp_path)
    info, loaded = inspect(str(tmp_path)), load(str(tmp_path), QAModel)
    assert (info.architecture, info.heads) == (loaded.model.architecture, "") == (name, "")
    assert (loaded.tokenizer, loaded.encoding) == (str(tmp_path), {})
    assert torch.equal(loaded.model(inputs).end_BT, qa(inputs).end_BT)


@torch.no_grad()
def test_of_a_folder_a_chooser_is_a_baseline_that_knows_nothing(tmp_path: Path) -> None:
    plain = model("bert")
    plain.to_pretrained().save_pretrained(tmp_path)
    first, second = (load(str(tmp_path), ChoiceModel).model for _ in range(2))
    assert fingerprint(first) == fingerprint(second)
    assert fingerprint(first.encoder) == fingerprint(plain.encoder)


@pytest.mark.parametrize("wanted", HEADS)
@pytest.mark.parametrize("found", HEADS)
@torch.no_grad()
def test_what_may_start_from_what(found: str, wanted: str, tmp_path: Path) -> None:
    old, inputs = model("bert", found), rows([9])
    path = save(tmp_path, old)
    part = START_FROM[wanted].get(found)
    if part is None:
        assert f"{found!r} heads" in told(path, lambda: start(at(path), HEADS[wanted]))
        return
    new = start(at(path), HEADS[wanted])
    assert type(new) is HEADS[wanted]
    assert new.training
    assert fingerprint(new.encoder) == fingerprint(old.encoder)
    if part == "span":
        new.eval()
        call = (inputs, torch.tensor([0]), inputs["attention_mask"] != 0)
        output = new(*call) if wanted == "xlnet" else new(inputs)
        torch.testing.assert_close(output.start_BT, old(inputs).start_BT)
        if wanted != "xlnet":
            assert torch.equal(output.end_BT, old(inputs).end_BT)


def test_the_table_knows_all_heads_and_every_model_type_has_one_row() -> None:
    assert HEADS.keys() == START_FROM.keys()
    assert all(START_FROM[heads][heads] == "all" for heads in HEADS)
    assert len({row.model_type for row in ARCHITECTURES.values()}) == len(ARCHITECTURES)


@torch.no_grad()
def test_a_folder_gives_encoder_span_head_and_pooler(tmp_path: Path) -> None:
    plain, inputs = model("bert"), rows([9])
    plain.to_pretrained().save_pretrained(tmp_path / "qa")
    for kind, options in ((RationaleModel, {"cls_source": "pooler"}), (XLNetModel, {})):
        qa = start(at(tmp_path / "qa"), kind, **options).eval()
        call = (inputs, torch.tensor([0]), inputs["attention_mask"] != 0)[: 3 if kind is XLNetModel else 1]
        torch.testing.assert_close(qa(*call).start_BT, plain(inputs).start_BT)
    encoder = AutoModel.from_config(plain.config)  # with a pooler, as pretrained encoders come
    encoder.save_pretrained(tmp_path / "encoder")
    qa = start(at(tmp_path / "encoder"), RationaleModel, cls_source="pooler")
    assert qa.answer_heads.pooler is not None
    assert torch.equal(qa.answer_heads.pooler.weight, encoder.pooler.dense.weight)


def test_settings_of_the_configuration_win(tmp_path: Path) -> None:
    path = save(tmp_path, model("bert"))
    assert start(at(path, config={"hidden_dropout_prob": 0.25}), SpanModel).config.hidden_dropout_prob == 0.25
    told(path, lambda: start(at(path, config={"hidden_size": 8}), SpanModel))
    assert "'hiden'" in told(path, lambda: start(at(path, config={"hiden": 8}), SpanModel))


@pytest.mark.parametrize(
    ("heads", "stored", "asked_for"),
    [("rationale", {"cls_source": "pooler"}, {}), ("choice", {}, {"pooling": "parity"})],
)
def test_options_of_the_heads_must_agree(
    heads: str, stored: dict[str, Any], asked_for: dict[str, Any], tmp_path: Path
) -> None:
    built = model("bert", heads, **stored)
    path = save(tmp_path, built)
    assert fingerprint(load(str(path), EncoderModel).model) == fingerprint(built)
    assert fingerprint(start(at(path), HEADS[heads], **stored)) == fingerprint(built)
    message = told(path, lambda: start(at(path), HEADS[heads], **asked_for))
    assert all(repr(value) in message for value in (*stored.values(), *asked_for.values()))


def test_another_kind_or_architecture_is_named(tmp_path: Path) -> None:
    path = save(tmp_path, model("electra"))
    told(path, lambda: load(str(path), ChoiceModel))
    told(path, lambda: inspect(str(path)).require_kind(ChoiceModel))
    assert inspect(str(path)).require(architecture="electra", heads="span").step == 12
    message = told(path, lambda: inspect(str(path)).require(architecture="bert"))
    assert "'electra'" in message
    assert "'bert'" in message
    assert "'xlnet'" in told(path, lambda: inspect(str(path)).require(heads="xlnet"))
    told(path, lambda: start(at(path, "bert"), SpanModel))
    told(save(tmp_path, model("bert", "choice")), lambda: load(str(path), QAModel))
    GPT2Config().save_pretrained(tmp_path / "gpt")
    assert "'gpt2'" in told(tmp_path / "gpt")


@pytest.mark.parametrize("source", ["nothing.ckpt", "/no/such/last.ckpt", "no-such-user/no-such-model"])
def test_nothing_there_is_named(source: str) -> None:
    told(source)
    told(source, lambda: start(at(source), SpanModel))


@pytest.mark.parametrize("share", [0.0, 1e-4, 0.5, 0.999])
def test_a_truncated_checkpoint_is_named(share: float, tmp_path: Path) -> None:
    path = save(tmp_path, model("bert"))
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    told(path)
    told(path, lambda: inspect(str(path)))


def test_any_bytes_are_told_from_a_checkpoint(tmp_path: Path) -> None:
    path, rng = tmp_path / "last.ckpt", random.Random(0)
    fuzz = (rng.randbytes(rng.randrange(60)) for _ in range(100))
    for data in (b"hello", b"{}", b"\x80\x02}q\x00.", *fuzz):
        path.write_bytes(data)
        told(path)


class Code:
    """What a malicious checkpoint would hold: something that runs when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("it_ran"),)


def test_code_in_a_checkpoint_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = save(tmp_path, content(model("bert")) | {"callbacks": Code()})
    told(path)
    assert not Path("it_ran").exists()
    torch.load(path, weights_only=False)
    assert Path("it_ran").exists()


def test_what_we_store_is_plain() -> None:
    """So that it loads with weights_only=True whatever the version."""

    def check(value: Any) -> None:
        if isinstance(value, dict):
            for item in (*value.keys(), *value.values()):
                check(item)
        else:
            assert type(value) in (str, int, float, bool)

    for name, heads in MODELS:
        check(describe(model(name, heads), TOKENIZER, ENCODING))


def test_damaged_and_foreign_checkpoints_are_named(tmp_path: Path) -> None:
    ours = content(model("bert"))
    for foreign in ({key: value for key, value in ours.items() if key != KEY}, [1], {KEY: 1}):
        told(save(tmp_path, foreign))
    for key, value in (
        ("format", 2),
        ("architecture", "gpt"),
        ("heads", "cloze"),
        ("config", "{"),
        ("config", 3),
        ("head_options", {"pooling": "max"}),
        ("tokenizer", {"a": 1}),
        ("encoding", "none"),
    ):
        told(save(tmp_path, ours | {KEY: ours[KEY] | {key: value}}))


def test_weights_that_do_not_fit_are_named(tmp_path: Path) -> None:
    ours = content(model("bert"))
    key = "model.span_head.layers.0.bias"
    less = {name: value for name, value in ours["state_dict"].items() if name != key}
    for state in (less, ours["state_dict"] | {key: torch.zeros(3)}):
        assert "span_head.layers.0.bias" in told(save(tmp_path, ours | {"state_dict": state}))


def test_names_of_weights_and_old_checkpoints_last(tmp_path: Path) -> None:
    """Files of every earlier version load: these names stand in them."""
    qa = model("bert")
    ours = content(qa)
    assert {"model.encoder.embeddings.word_embeddings.weight", "model.span_head.layers.0.weight"} <= ours[
        "state_dict"
    ].keys()
    old = {key: value for key, value in ours[KEY].items() if key not in ("heads", "head_options")}
    path = save(tmp_path, ours | {KEY: old})
    assert fingerprint(load(str(path), QAModel).model) == fingerprint(qa)
    heads = {"rationale": "rationale.0.weight", "xlnet": "end_state.weight"}
    for kind, name in heads.items():
        assert f"answer_heads.{name}" in model("bert", kind).state_dict()
    assert "choice_head.weight" in model("bert", "choice").state_dict()


@pytest.mark.parametrize("broken", ["no weights", "truncated", "garbage", "config", "no model type", "empty"])
def test_a_broken_folder_is_named(broken: str, tmp_path: Path) -> None:
    load_pretrained(backbone("bert")).save_pretrained(tmp_path)
    weights, config = tmp_path / "model.safetensors", tmp_path / "config.json"
    if broken in ("no weights", "empty", "garbage"):
        weights.unlink()
    if broken == "garbage":
        (tmp_path / "pytorch_model.bin").write_bytes(b"garbage")
    if broken == "truncated":
        weights.write_bytes(weights.read_bytes()[:999])
    if broken == "config":
        config.write_text("{")
    if broken == "no model type":
        config.write_text('{"hidden_size": 3}')
    if broken == "empty":
        config.unlink()
    assert ("config.json" in told(tmp_path)) == (broken in ("config", "no model type"))


def test_fingerprints_tell_models_apart() -> None:
    one, same, other = model("bert"), model("bert"), model("bert", seed=1)
    assert fingerprint(one) == fingerprint(same) != fingerprint(other)
    with torch.no_grad():
        same.span_head.layers[0].bias[0] += 1e-6
    assert fingerprint(one) != fingerprint(same)
    assert fingerprint(one) != fingerprint(model("bert").bfloat16())


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_an_export_is_a_folder_of_transformers(name: str, tmp_path: Path) -> None:
    qa, inputs, folder = model(name), rows([9]), tmp_path / "new" / "folder"
    path = save(tmp_path, qa)
    export(str(path), folder)
    own = AutoModelForQuestionAnswering.from_pretrained(folder).eval()
    taken = {key: value for key, value in inputs.items() if qa.segments or key != "token_type_ids"}
    assert torch.equal(own(**taken).start_logits, qa(inputs).start_BT)
    for file, text in TOKENIZER.items():
        assert (folder / file).read_text() == text
    assert [entry.name for entry in folder.parent.iterdir()] == ["folder"]
    told(folder, lambda: export(str(path), folder))


@torch.no_grad()
def test_an_export_leaves_answer_heads_behind_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    qa, inputs = model("bert", "rationale"), rows([9])
    export(str(save(tmp_path, qa)), tmp_path / "folder")
    own = AutoModelForQuestionAnswering.from_pretrained(tmp_path / "folder").eval()
    assert torch.equal(own(**inputs).start_logits, qa(inputs).start_BT)
    assert "'rationale' heads" in caplog.text
    for heads in ("xlnet", "choice"):
        path = save(tmp_path, model("bert", heads))
        told(path, lambda path=path: export(str(path), tmp_path / "other"))  # type: ignore[misc]
    told(tmp_path / "no.ckpt", lambda: export(str(tmp_path / "no.ckpt"), tmp_path / "other"))
    told(tmp_path / "folder", lambda: export(str(tmp_path / "folder"), tmp_path / "other"))
    assert not (tmp_path / "other").exists()
