"""The table of backbones: every row builds, and what does not fit is told in the user's words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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

from models.backbones import ARCHITECTURES, Backbone, CheckpointError, backbone_config, load_pretrained
from models.checkpoint import start
from models.heads.span import SpanModel
from models.tiny_init import POSITION_AXES
from tests.models.tiny import NAMES, WITH_SEGMENTS, backbone, rows


@pytest.fixture(scope="module")
def bert_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    load_pretrained(backbone("bert")).save_pretrained(folder)
    return folder


def told(**values: Any) -> str:
    """What the user reads: one line."""
    with pytest.raises(CheckpointError) as caught:
        load_pretrained(Backbone(**values))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_every_row_builds_with_its_own_tiny_configuration(name: str) -> None:
    config = backbone_config(Backbone(architecture=name, checkpoint="random"))  # type: ignore[arg-type]
    assert config.model_type == ARCHITECTURES[name].model_type
    assert config.hidden_size == 128
    assert config.num_hidden_layers == 2
    built = load_pretrained(backbone(name))
    assert built.training
    assert {parameter.dtype for parameter in built.parameters()} == {torch.float32}
    assert built.config.hidden_size == 32


@pytest.mark.parametrize("name", NAMES)
def test_the_span_head_is_all_that_the_class_puts_on_its_encoder(name: str) -> None:
    """No module of transformers' class is left out, dropout included; so training is the same."""
    built = load_pretrained(backbone(name))
    outside = [key for key, _ in built.named_children() if key != built.base_model_prefix]
    assert sorted(outside) == sorted(ARCHITECTURES[name].span_head)
    head = SpanModel(built, name).span_head
    assert isinstance(head.layers[-1], nn.Linear)
    assert head.layers[-1].out_features == 2


@pytest.mark.parametrize("name", NAMES)
def test_token_types_reach_the_encoders_that_have_segments(name: str) -> None:
    """Also where the encoder has one segment only (RoBERTa), or would not notice (DistilBERT, ModernBERT)."""
    built = start(backbone(name), SpanModel).eval()
    seen: list[set[str]] = []
    built.encoder.register_forward_pre_hook(lambda _m, _a, kwargs: seen.append(set(kwargs)), with_kwargs=True)
    inputs = rows([9, 5])
    one = built(inputs).start_BT
    two = built(inputs | {"token_type_ids": torch.zeros_like(inputs["token_type_ids"])}).start_BT
    assert torch.equal(one, two) == (name not in WITH_SEGMENTS)
    assert ("token_type_ids" in seen[0]) == ARCHITECTURES[name].segments
    assert {"input_ids", "attention_mask"} <= seen[0]


def test_xlnet_has_no_memories() -> None:
    config = backbone_config(backbone("xlnet"))
    assert (config.use_mems_eval, config.use_mems_train) == (False, False)


@pytest.mark.parametrize("name", ["bert", "xlnet"])
def test_gradient_checkpointing_works_or_is_refused(name: str) -> None:
    if name == "xlnet":
        with pytest.raises(CheckpointError, match="does not support"):
            load_pretrained(backbone(name, gradient_checkpointing=True))
    else:
        assert load_pretrained(backbone(name, gradient_checkpointing=True)).is_gradient_checkpointing


@pytest.mark.parametrize("name", ["xlnet", "deberta-v3"])
@pytest.mark.parametrize("where", ["random", "folder"])
def test_an_attention_kernel_that_does_not_exist_is_refused(name: str, where: str, tmp_path: Path) -> None:
    if where == "folder":
        load_pretrained(backbone(name)).save_pretrained(tmp_path)
        message = told(architecture=name, checkpoint=str(tmp_path), attention="sdpa")
        assert str(tmp_path) in message
    else:
        with pytest.raises(CheckpointError) as caught:
            load_pretrained(backbone(name, attention="sdpa"))
        message = str(caught.value)
    assert "scaled_dot_product_attention" in message


@pytest.mark.parametrize("name", ["bert", "roberta", "electra"])
def test_reading_init_changes_the_encoder(name: str) -> None:
    """Also ELECTRA's, whose embeddings are narrower than its layers."""
    ready = load_pretrained(backbone(name, reading_init=True))
    table = ready.base_model.embeddings.position_embeddings.weight
    axes = min(POSITION_AXES, table.shape[1])
    torch.testing.assert_close(table[:, :axes].pow(2).mean(1), torch.ones(len(table)))
    assert not table[:, axes:].any()
    plain = load_pretrained(backbone(name)).base_model.embeddings.position_embeddings.weight
    assert not torch.equal(plain, table)
    model = SpanModel(ready, name).eval()
    assert torch.isfinite(model(rows([9])).start_BT).all()


def test_reading_init_is_refused_elsewhere() -> None:
    with pytest.raises(CheckpointError, match=r"backbone\.reading_init"):
        load_pretrained(backbone("xlnet", reading_init=True))


@pytest.mark.parametrize("config", [{"hiden_size": 3}, {"hidden_size": "many"}, {"hidden_size": 30}])
def test_bad_settings_of_random_models_are_refused(config: dict[str, Any]) -> None:
    message = told(architecture="bert", checkpoint="random", config={"vocab_size": 60} | config)
    assert message.startswith("backbone")
    assert any(word in message for word in ("hiden_size", "hidden_size", "hidden size"))


def test_bad_settings_of_a_checkpoint_are_refused(bert_folder: Path) -> None:
    told_of = {"architecture": "bert", "checkpoint": str(bert_folder)}
    assert "'hiden_size'" in told(**told_of, config={"hiden_size": 3})
    assert "backbone.config" in told(**told_of, config={"hidden_size": "many"})
    message = told(**told_of, config={"hidden_size": 16})
    assert str(bert_folder) in message
    assert "32" in message
    assert "16" in message


def test_settings_replace_those_of_the_checkpoint(bert_folder: Path) -> None:
    built = load_pretrained(
        Backbone(architecture="bert", checkpoint=str(bert_folder), config={"hidden_dropout_prob": 0.3})
    )
    assert built.bert.embeddings.dropout.p == 0.3


@pytest.mark.parametrize("checkpoint", ["/no/such/folder", "no-such-user/no-such-model", "nothing"])
def test_a_missing_checkpoint_is_named(checkpoint: str) -> None:
    assert f"'{checkpoint}'" in told(architecture="bert", checkpoint=checkpoint)


def test_another_architecture_is_named(bert_folder: Path) -> None:
    message = told(architecture="roberta", checkpoint=str(bert_folder))
    for word in (str(bert_folder), "'bert'", "'roberta'", "backbone.architecture"):
        assert word in message


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_truncated_weights_are_named(share: float, bert_folder: Path, tmp_path: Path) -> None:
    weights = (bert_folder / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(weights[: int(share * len(weights))])
    (tmp_path / "config.json").write_bytes((bert_folder / "config.json").read_bytes())
    assert str(tmp_path) in told(architecture="bert", checkpoint=str(tmp_path))


def test_missing_layers_are_named(bert_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes((bert_folder / "model.safetensors").read_bytes())
    config = json.loads((bert_folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    message = told(architecture="bert", checkpoint=str(tmp_path))
    assert "lacks 16 encoder weights" in message
    assert "bert.encoder.layer.2" in message


@pytest.mark.parametrize("name", NAMES)
def test_a_fine_tuned_head_is_kept_and_a_bare_encoder_gets_a_new_one(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tuned = load_pretrained(backbone(name))
    head = ARCHITECTURES[name].span_head[-1]
    with torch.no_grad():
        getattr(tuned, head).bias.copy_(torch.tensor([3.0, -2.0]))
    tuned.save_pretrained(tmp_path / "tuned")
    AutoModel.from_pretrained(tmp_path / "tuned").save_pretrained(tmp_path / "bare")
    caplog.set_level("INFO", logger="models.backbones")
    for folder, kept in (("tuned", True), ("bare", False)):
        again = load_pretrained(Backbone(architecture=name, checkpoint=str(tmp_path / folder)))  # type: ignore[arg-type]
        assert (getattr(again, head).bias.tolist() == [3.0, -2.0]) == kept
        state, original = again.base_model.state_dict(), tuned.base_model.state_dict()
        assert all(torch.equal(state[key], original[key]) for key in original)
        assert caplog.messages[-1].endswith("kept from the checkpoint" if kept else "starts random")


def test_the_head_of_another_task_is_not_taken(tmp_path: Path) -> None:
    config = BertConfig(**backbone("bert").config, num_hidden_layers=1, num_attention_heads=4)
    BertForSequenceClassification(config).save_pretrained(tmp_path)
    built = load_pretrained(Backbone(architecture="bert", checkpoint=str(tmp_path)))
    assert type(built).__name__ == "BertForQuestionAnswering"


def test_half_precision_checkpoints_load_in_float32(tmp_path: Path) -> None:
    load_pretrained(backbone("bert")).to(torch.bfloat16).save_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).dtype == torch.bfloat16
    assert AutoModelForQuestionAnswering.from_pretrained(tmp_path).dtype == torch.bfloat16
    model = start(Backbone(architecture="bert", checkpoint=str(tmp_path)), SpanModel)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert model(rows([5])).start_BT.dtype == torch.float32
