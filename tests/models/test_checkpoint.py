"""Checkpoints that stand on their own, and one line about those that cannot be used."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForQuestionAnswering, GPT2Config

from models.backbones import ARCHITECTURES, Backbone, load_pretrained
from models.checkpoint import check_ckpt, describe, fingerprint, load_qa, require_heads, starting_model
from models.checkpoint_file import KEY, CheckpointError, read_ckpt
from models.export import export
from models.heads.answer_model import AnswerHeadsName, build_answer_model
from models.heads.qa_model import QAModel
from tests.models.tiny import NAMES, answer_model, backbone, model, rows

TOKENIZER = {"tokenizer.json": "{}", "tokenizer_config.json": "{}"}
ENCODING = {"order": "context_first", "max_length": 100}


def content(qa: QAModel) -> dict[str, Any]:
    """What Lightning saves, as far as we read it."""
    return {
        "state_dict": {f"model.{key}": value for key, value in qa.state_dict().items()},
        "global_step": 12,
        KEY: describe(qa, TOKENIZER, ENCODING),
    }


def save(folder: Path, value: Any) -> Path:
    torch.save(value, folder / "last.ckpt")
    return folder / "last.ckpt"


def told(path: Path | str, load: Callable[[], object] | None = None) -> str:
    """What the user reads about `path`: one line that names it."""
    with pytest.raises(CheckpointError) as caught:
        (load or (lambda: load_qa(str(path))))()
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_both_kinds_of_checkpoint_give_equal_logits(name: str, tmp_path: Path) -> None:
    qa, inputs = model(name), rows([12, 7], width=16)
    qa.to_pretrained().save_pretrained(tmp_path / "folder")
    path = save(tmp_path, content(qa))
    expected = qa(inputs)
    for source in (tmp_path / "folder", path):
        loaded = load_qa(str(source), architecture=name)
        assert loaded.model.architecture == name
        assert not loaded.model.training
        for found, wanted in zip(loaded.model(inputs), expected, strict=True):
            assert torch.equal(found, wanted)
        assert fingerprint(loaded.model) == fingerprint(qa)
    assert (loaded.tokenizer, loaded.encoding) == (TOKENIZER, ENCODING)
    assert load_qa(str(tmp_path / "folder")).tokenizer == str(tmp_path / "folder")
    assert load_qa(str(tmp_path / "folder")).encoding == {}


@pytest.mark.parametrize("name", NAMES)
def test_a_checkpoint_keeps_the_configuration(name: str, tmp_path: Path) -> None:
    qa = QAModel.from_backbone(backbone(name, config={"initializer_range": 0.125}))
    again = load_qa(str(save(tmp_path, content(qa)))).model
    assert again.config.initializer_range == 0.125
    one, two = qa.config.to_dict(), again.config.to_dict()
    assert {key: two[key] for key in one} == one


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_an_export_is_a_folder_of_transformers(name: str, tmp_path: Path) -> None:
    qa, inputs = model(name), rows([9])
    path = save(tmp_path, content(qa))
    export(str(path), tmp_path / "new" / "folder")
    own = AutoModelForQuestionAnswering.from_pretrained(tmp_path / "new" / "folder").eval()
    taken = {key: value for key, value in inputs.items() if qa.segments or key != "token_type_ids"}
    assert torch.equal(own(**taken).start_logits, qa(inputs).start_BT)
    for file, text in TOKENIZER.items():
        assert (tmp_path / "new" / "folder" / file).read_text() == text
    assert [entry.name for entry in (tmp_path / "new").iterdir()] == ["folder"]
    told(tmp_path / "new" / "folder", lambda: export(str(path), tmp_path / "new" / "folder"))
    told(tmp_path / "no.ckpt", lambda: export(str(tmp_path / "no.ckpt"), tmp_path / "x"))
    assert not (tmp_path / "x").exists()


def test_training_starts_from_either(tmp_path: Path) -> None:
    qa = model("bert")
    path = save(tmp_path, content(qa))
    config = {"hidden_dropout_prob": 0.25}
    start = starting_model(Backbone(architecture="bert", checkpoint=str(path), config=config))
    assert start.training
    assert start.config.hidden_dropout_prob == 0.25
    assert fingerprint(start) == fingerprint(qa)
    told(path, lambda: starting_model(Backbone(architecture="roberta", checkpoint=str(path))))
    told("no.ckpt", lambda: starting_model(Backbone(architecture="bert", checkpoint="no.ckpt")))
    told(
        path,
        lambda: starting_model(
            Backbone(architecture="bert", checkpoint=str(path), config={"hidden_size": 8})
        ),
    )
    misspelt = Backbone(architecture="bert", checkpoint=str(path), config={"hiden": 8})
    assert "no setting 'hiden'" in told(path, lambda: starting_model(misspelt))


def test_a_checkpoint_is_checked_without_its_weights(tmp_path: Path) -> None:
    path = save(tmp_path, content(model("electra")))
    assert check_ckpt(path, "electra") == 12
    message = told(path, lambda: check_ckpt(path, "bert"))
    assert "'electra'" in message
    assert "'bert'" in message
    assert set(read_ckpt(path)) == {"state_dict", "global_step", KEY}


def test_another_architecture_is_named(tmp_path: Path) -> None:
    path = save(tmp_path, content(model("electra")))
    assert "'electra', not 'bert'" in told(path, lambda: load_qa(str(path), architecture="bert"))
    GPT2Config().save_pretrained(tmp_path / "gpt")
    assert "'gpt2' is not among bert, " in told(tmp_path / "gpt")


@pytest.mark.parametrize("source", ["nothing.ckpt", "/no/such/last.ckpt", "no-such-user/no-such-model"])
def test_nothing_there_is_named(source: str) -> None:
    told(source)


@pytest.mark.parametrize("share", [0.0, 1e-6, 1e-4, 0.01, 0.5, 0.999])
def test_a_truncated_checkpoint_is_named(share: float, tmp_path: Path) -> None:
    path = save(tmp_path, content(model("bert")))
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    assert "truncated" in told(path)
    told(path, lambda: check_ckpt(path, "bert"))


def test_any_bytes_are_told_from_a_checkpoint(tmp_path: Path) -> None:
    path, rng = tmp_path / "last.ckpt", random.Random(0)
    for data in [
        b"hello",
        b"{}",
        b"\x80\x02}q\x00.",
        *(rng.randbytes(rng.randrange(60)) for _ in range(150)),
    ]:
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
            for key, item in value.items():
                check(key)
                check(item)
        else:
            assert type(value) in (str, int, float, bool)

    for name in NAMES:
        check(describe(model(name), TOKENIZER, ENCODING))


def test_checkpoints_of_others_are_named(tmp_path: Path) -> None:
    ours = content(model("bert"))
    lightning = {key: value for key, value in ours.items() if key != KEY}
    assert "not a checkpoint of this project" in told(save(tmp_path, lightning))
    assert "not a checkpoint of this project" in told(save(tmp_path, [1]))
    assert "not a checkpoint of this project" in told(save(tmp_path, {KEY: 1}))
    assert "reads format 1" in told(save(tmp_path, ours | {KEY: ours[KEY] | {"format": 2}}))
    assert "'gpt'" in told(save(tmp_path, ours | {KEY: ours[KEY] | {"architecture": "gpt"}}))


def test_weights_that_do_not_fit_are_named(tmp_path: Path) -> None:
    ours = content(model("bert"))
    key = "model.span_head.layers.0.bias"
    less = {name: value for name, value in ours["state_dict"].items() if name != key}
    assert "span_head.layers.0.bias" in told(save(tmp_path, ours | {"state_dict": less}))
    wrong = ours["state_dict"] | {key: torch.zeros(3)}
    assert "span_head.layers.0.bias" in told(save(tmp_path, ours | {"state_dict": wrong}))


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


def test_every_model_type_has_one_row() -> None:
    """A folder names its model type only; load_qa finds the row by it."""
    assert len({row.model_type for row in ARCHITECTURES.values()}) == len(ARCHITECTURES)


ANSWERS: tuple[tuple[str, AnswerHeadsName], ...] = tuple(
    (name, heads) for name in ("bert", "roberta", "xlnet") for heads in ("rationale", "xlnet")
)


@pytest.mark.parametrize(("name", "heads"), ANSWERS)
@torch.no_grad()
def test_answer_heads_come_back(name: str, heads: AnswerHeadsName, tmp_path: Path) -> None:
    qa, inputs = answer_model(name, heads), rows([12, 7], width=16)
    path = save(tmp_path, content(qa))
    loaded = load_qa(str(path), architecture=name).model
    assert require_heads(loaded, str(path)) is loaded
    assert type(loaded) is type(qa)
    assert not loaded.training
    assert fingerprint(loaded) == fingerprint(qa)
    for found, wanted in zip(loaded(inputs), qa(inputs), strict=True):
        assert found is wanted is None or torch.equal(found, wanted)
    again = build_answer_model(Backbone(architecture=name, checkpoint=str(path)), heads)  # type: ignore[arg-type]
    assert again.training
    assert fingerprint(again) == fingerprint(qa)
    assert check_ckpt(path, name, heads) == 12
    assert f"{heads!r} heads, the configuration asks for 'span'" in told(
        path, lambda: check_ckpt(path, name, "span")
    )


def test_options_of_the_heads_come_back(tmp_path: Path) -> None:
    qa = answer_model("bert", "rationale", cls_source="pooler")
    path = save(tmp_path, content(qa))
    assert fingerprint(load_qa(str(path)).model) == fingerprint(qa)
    start = Backbone(architecture="bert", checkpoint=str(path))
    assert fingerprint(build_answer_model(start, "rationale", cls_source="pooler")) == fingerprint(qa)
    message = told(path, lambda: build_answer_model(start, "rationale"))
    assert "'pooler'" in message
    assert "'hidden'" in message


@pytest.mark.parametrize(("name", "heads"), ANSWERS)
@torch.no_grad()
def test_a_plain_checkpoint_starts_answer_heads(
    name: str, heads: AnswerHeadsName, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    plain, inputs = model(name), rows([12, 7])
    path = save(tmp_path, content(plain))
    torch.manual_seed(0)
    qa = build_answer_model(Backbone(architecture=name, checkpoint=str(path)), heads)  # type: ignore[arg-type]
    assert qa.training
    assert f"encoder and span head taken over, answer heads ({heads}) start random" in caplog.text
    found, wanted = qa.eval()(inputs), plain(inputs)
    assert torch.equal(found.hidden_BTD, wanted.hidden_BTD)
    torch.testing.assert_close(found.start_BT, wanted.start_BT)
    if heads == "rationale":
        assert torch.equal(found.end_BT, wanted.end_BT)
    assert "no answer-type heads" in told(path, lambda: require_heads(plain, str(path)))


def test_other_heads_are_named(tmp_path: Path) -> None:
    path = save(tmp_path, content(answer_model("bert", "rationale")))
    start = Backbone(architecture="bert", checkpoint=str(path))
    assert "'rationale' heads, the configuration asks for 'xlnet'" in told(
        path, lambda: build_answer_model(start, "xlnet")
    )
    told(
        path, lambda: build_answer_model(Backbone(architecture="roberta", checkpoint=str(path)), "rationale")
    )
    ours = content(model("bert"))
    assert "unknown heads 'cloze'" in told(save(tmp_path, ours | {KEY: ours[KEY] | {"heads": "cloze"}}))


def test_checkpoints_from_before_answer_heads_load(tmp_path: Path) -> None:
    qa = model("bert")
    ours = content(qa)
    old = {key: value for key, value in ours[KEY].items() if key not in ("heads", "head_options")}
    path = save(tmp_path, ours | {KEY: old})
    assert fingerprint(load_qa(str(path)).model) == fingerprint(qa)
    assert check_ckpt(path, "bert", "span") == 12


@torch.no_grad()
def test_a_plain_model_starts_from_rationale_heads_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    qa, inputs = answer_model("bert", "rationale"), rows([9])
    path = save(tmp_path, content(qa))
    start = starting_model(Backbone(architecture="bert", checkpoint=str(path)))
    assert type(start) is QAModel
    assert torch.equal(start.eval()(inputs).end_BT, qa(inputs).end_BT)
    assert "'rationale' heads left behind" in caplog.text
    path = save(tmp_path, content(answer_model("xlnet", "xlnet")))
    message = told(path, lambda: starting_model(Backbone(architecture="xlnet", checkpoint=str(path))))
    assert "'xlnet' heads" in message


@torch.no_grad()
def test_an_export_leaves_answer_heads_behind_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    qa, inputs = answer_model("bert", "rationale"), rows([9])
    path = save(tmp_path, content(qa))
    export(str(path), tmp_path / "folder")
    own = AutoModelForQuestionAnswering.from_pretrained(tmp_path / "folder").eval()
    assert torch.equal(own(**inputs).start_logits, qa(inputs).start_BT)
    assert "encoder and span head only" in caplog.text
    path = save(tmp_path, content(answer_model("xlnet", "xlnet")))
    assert "no counterpart" in told(path, lambda: export(str(path), tmp_path / "other"))
    assert not (tmp_path / "other").exists()
    with pytest.raises(ValueError, match="no counterpart"):
        load_qa(str(path)).model.to_pretrained()
