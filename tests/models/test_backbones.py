"""The table of backbones: every row builds, and what does not fit is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForQuestionAnswering,
    BertConfig,
    BertForSequenceClassification,
)

from models.backbones import ARCHITECTURES
from models.heads.span import SpanModel
from models.loading import load_pretrained, start
from storage.errors import DataError
from tests.models.tiny import NAMES, WITH_SEGMENTS, at, backbone, rows


@pytest.mark.parametrize("name", NAMES)
def test_every_row_builds(name: str) -> None:
    row, built = ARCHITECTURES[name], load_pretrained(backbone(name))
    assert {parameter.dtype for parameter in built.parameters()} == {torch.float32}
    # No module of transformers' class is left out, dropout included; so training is the same.
    outside = [key for key, _ in built.named_children() if key != built.base_model_prefix]
    assert sorted(outside) == sorted(row.span_head)
    model = SpanModel(built, name).eval()
    # Token types reach the encoders that have segments, also those that have one only (RoBERTa).
    seen: list[set[str]] = []
    model.encoder.register_forward_pre_hook(lambda _m, _a, kwargs: seen.append(set(kwargs)), with_kwargs=True)
    inputs = rows([9, 5])
    one = model(inputs).start_BT
    two = model(inputs | {"token_type_ids": torch.zeros_like(inputs["token_type_ids"])}).start_BT
    assert torch.equal(one, two) == (name not in WITH_SEGMENTS)
    assert ("token_type_ids" in seen[0]) == row.segments


@pytest.mark.parametrize("name", ["bert", "roberta", "electra"])
def test_reading_init_changes_the_encoder(name: str) -> None:
    """Also ELECTRA's, whose embeddings are narrower than its layers."""
    ready, plain = (load_pretrained(backbone(name, reading_init=init)) for init in (True, False))
    one, other = (built.base_model.embeddings.position_embeddings.weight for built in (ready, plain))
    assert one.pow(2).mean() > 9 * other.pow(2).mean()
    assert torch.isfinite(SpanModel(ready, name).eval()(rows([9])).start_BT).all()


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    """In one line; wrong values and broken folders are in tests/mistakes."""
    load_pretrained(backbone("bert")).save_pretrained(bert_folder := tmp_path / "bert")
    (tmp_path / "model.safetensors").write_bytes((bert_folder / "model.safetensors").read_bytes())
    config = json.loads((bert_folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    for wanted, words in (
        (at(bert_folder, config={"hiden_size": 3}), ("hiden_size",)),
        (at(bert_folder, config={"hidden_size": 16}), (bert_folder, "of another shape")),
        (at(bert_folder, "roberta"), (bert_folder, "bert", "roberta", "backbone.architecture")),
        (at("no-such-user/no-such-model"), ("no-such-user/no-such-model",)),
        (at(tmp_path), (tmp_path, "missing", "encoder.layer.2")),
        (backbone("xlnet", gradient_checkpointing=True), ("XLNet",)),
        (backbone("xlnet", reading_init=True), ("backbone.reading_init",)),
    ):
        with pytest.raises(DataError) as caught:
            start(wanted, SpanModel)
        assert all(str(word) in str(caught.value) for word in words)
        assert "\n" not in str(caught.value)


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


def test_other_heads_precisions_and_settings_of_a_folder(tmp_path: Path) -> None:
    """Another task's head is not taken; half precision becomes float32; settings replace the folder's own."""
    config = BertConfig(**backbone("bert").config, num_hidden_layers=1, num_attention_heads=4)
    BertForSequenceClassification(config).save_pretrained(tmp_path / "task")
    assert type(load_pretrained(at(tmp_path / "task"))).__name__ == "BertForQuestionAnswering"
    load_pretrained(backbone("bert")).to(torch.bfloat16).save_pretrained(tmp_path / "half")
    assert AutoConfig.from_pretrained(tmp_path / "half").dtype == torch.bfloat16
    assert AutoModelForQuestionAnswering.from_pretrained(tmp_path / "half").dtype == torch.bfloat16
    model = start(at(tmp_path / "half", gradient_checkpointing=True), SpanModel)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert model.encoder.is_gradient_checkpointing
    built = load_pretrained(at(tmp_path / "half", config={"hidden_dropout_prob": 0.3}))
    assert built.bert.embeddings.dropout.p == 0.3
