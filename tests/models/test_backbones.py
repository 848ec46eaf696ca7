"""The table of backbones: every row builds, and what does not fit is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForQuestionAnswering,
    BertConfig,
    BertForSequenceClassification,
)

from models.backbones import ARCHITECTURES, Backbone
from models.checkpoint import start
from models.heads.span import SpanModel
from models.pretrained import backbone_config, load_pretrained
from models.tiny_init import POSITION_AXES
from storage.errors import DataError
from tests.models.tiny import NAMES, WITH_SEGMENTS, at, backbone, rows


@pytest.fixture(scope="module")
def bert_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    load_pretrained(backbone("bert")).save_pretrained(folder)
    return folder


def refusal(wanted: Backbone) -> str:
    """What the user reads: one line."""
    with pytest.raises(DataError) as caught:
        start(wanted, SpanModel)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_every_row_builds(name: str) -> None:
    row, config = ARCHITECTURES[name], backbone_config(at("random", name))
    assert (config.model_type, config.hidden_size, config.num_hidden_layers) == (row.model_type, 128, 2)
    built = load_pretrained(backbone(name))
    assert built.training
    assert {parameter.dtype for parameter in built.parameters()} == {torch.float32}
    assert built.config.hidden_size == 32
    # No module of transformers' class is left out, dropout included; so training is the same.
    outside = [key for key, _ in built.named_children() if key != built.base_model_prefix]
    assert sorted(outside) == sorted(row.span_head)
    model = SpanModel(built, name).eval()
    last = model.span_head.layers[-1]
    assert isinstance(last, nn.Linear)
    assert last.out_features == 2
    # Token types reach the encoders that have segments, also those that have one only (RoBERTa).
    seen: list[set[str]] = []
    model.encoder.register_forward_pre_hook(lambda _m, _a, kwargs: seen.append(set(kwargs)), with_kwargs=True)
    inputs = rows([9, 5])
    one = model(inputs).start_BT
    two = model(inputs | {"token_type_ids": torch.zeros_like(inputs["token_type_ids"])}).start_BT
    assert torch.equal(one, two) == (name not in WITH_SEGMENTS)
    assert ("token_type_ids" in seen[0]) == row.segments


def test_what_an_architecture_cannot_do_is_refused() -> None:
    config = backbone_config(backbone("xlnet"))
    assert (config.use_mems_eval, config.use_mems_train) == (False, False)
    assert start(backbone("bert", gradient_checkpointing=True), SpanModel).encoder.is_gradient_checkpointing
    assert "xlnet" in refusal(backbone("xlnet", gradient_checkpointing=True)).lower()
    assert "backbone.reading_init" in refusal(backbone("xlnet", reading_init=True))


@pytest.mark.parametrize("name", ["bert", "roberta", "electra"])
def test_reading_init_changes_the_encoder(name: str) -> None:
    """Also ELECTRA's, whose embeddings are narrower than its layers."""
    ready = load_pretrained(backbone(name, reading_init=True))
    table = ready.base_model.embeddings.position_embeddings.weight
    axes = min(POSITION_AXES, table.shape[1])
    torch.testing.assert_close(table[:, :axes].pow(2).mean(1), torch.ones(len(table)))
    assert not table[:, axes:].any()
    assert torch.isfinite(SpanModel(ready, name).eval()(rows([9])).start_BT).all()


def test_a_folder_that_does_not_fit_is_named(bert_folder: Path, tmp_path: Path) -> None:
    """Wrong values and broken folders are in tests/mistakes."""
    (tmp_path / "model.safetensors").write_bytes((bert_folder / "model.safetensors").read_bytes())
    config = json.loads((bert_folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    for wanted, words in (
        (at(bert_folder, config={"hiden_size": 3}), ("hiden_size",)),
        (at(bert_folder, config={"hidden_size": 16}), (bert_folder, "of another shape")),
        (at(bert_folder, "roberta"), (bert_folder, "bert", "roberta", "backbone.architecture")),
        (at("no-such-user/no-such-model"), ("no-such-user/no-such-model",)),
        (at(tmp_path), (tmp_path, "missing", "encoder.layer.2")),
    ):
        message = refusal(wanted)
        assert all(str(word) in message for word in words), message


@pytest.mark.parametrize("name", sorted(ARCHITECTURES.keys() - {"causal"}))
def test_a_folder_with_fewer_layers_than_weights_is_refused(name: str, tmp_path: Path) -> None:
    whole = load_pretrained(at("random", name))
    layers = whole.config.attribute_map.get("num_hidden_layers", "num_hidden_layers")
    whole.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text()) | {layers: 1}
    config.pop("layer_types", None)
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(DataError, match="of layers that the configuration lacks"):
        load_pretrained(at(tmp_path, name))


@pytest.mark.parametrize("name", NAMES)
def test_a_fine_tuned_head_is_kept_and_a_bare_encoder_gets_a_new_one(name: str, tmp_path: Path) -> None:
    tuned = load_pretrained(backbone(name))
    head = ARCHITECTURES[name].span_head[-1]
    with torch.no_grad():
        getattr(tuned, head).bias.copy_(torch.tensor([3.0, -2.0]))
    tuned.save_pretrained(tmp_path / "tuned")
    AutoModel.from_pretrained(tmp_path / "tuned").save_pretrained(tmp_path / "bare")
    for folder, kept in (("tuned", True), ("bare", False)):
        again = load_pretrained(at(tmp_path / folder, name))
        assert (getattr(again, head).bias.tolist() == [3.0, -2.0]) == kept
        torch.testing.assert_close(
            again.base_model.state_dict(), tuned.base_model.state_dict(), rtol=0, atol=0
        )


def test_other_heads_precisions_and_settings_of_a_folder(bert_folder: Path, tmp_path: Path) -> None:
    """Another task's head is not taken; half precision becomes float32; settings replace the folder's own."""
    config = BertConfig(**backbone("bert").config, num_hidden_layers=1, num_attention_heads=4)
    BertForSequenceClassification(config).save_pretrained(tmp_path / "task")
    assert type(load_pretrained(at(tmp_path / "task"))).__name__ == "BertForQuestionAnswering"
    load_pretrained(backbone("bert")).to(torch.bfloat16).save_pretrained(tmp_path / "half")
    assert AutoConfig.from_pretrained(tmp_path / "half").dtype == torch.bfloat16
    assert AutoModelForQuestionAnswering.from_pretrained(tmp_path / "half").dtype == torch.bfloat16
    model = start(at(tmp_path / "half"), SpanModel)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    built = load_pretrained(at(bert_folder, config={"hidden_dropout_prob": 0.3}))
    assert built.bert.embeddings.dropout.p == 0.3
