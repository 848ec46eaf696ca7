"""The table of backbones: every row builds, and what does not fit is named. Missing and unexpected
weights are refused on every road from a file to a model.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, BertConfig, BertForSequenceClassification

from interventune.evaluation.answering.asking import Asking
from interventune.evaluation.answering.open import open_answerer
from interventune.evaluation.answering.scorers import Scorer
from interventune.evaluation.reproduce.tiny_classifier import save_classifier
from interventune.models.backbones import ARCHITECTURES
from interventune.models.heads.span import SpanModel
from interventune.models.loading import load_pretrained, start
from interventune.storage.errors import DataError
from tests.data_modules.fixtures.tiny_language_models import save
from tests.evaluation.checkpoints import save_folder
from tests.models.tiny import NAMES, at, backbone, content, rows


@pytest.mark.parametrize("name", ["bert", "roberta", "electra"])
def test_reading_init_changes_the_encoder(name: str) -> None:
    """Also ELECTRA's, whose embeddings are narrower than its layers."""
    ready, plain = (load_pretrained(backbone(name, reading_init=init)) for init in (True, False))
    positions = [model.base_model.embeddings.position_embeddings for model in (ready, plain)]
    one, other = (table.weight.pow(2).mean() for table in positions)
    assert one > 9 * other
    assert torch.isfinite(SpanModel(ready, name).eval()(rows([9])).start_BT).all()


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    """In one line; wrong values and broken folders are in tests/mistakes."""
    load_pretrained(backbone("bert")).save_pretrained(folder := tmp_path / "bert")
    load_pretrained(backbone("bert")).save_pretrained(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    for case, words in (
        (at(folder, config={"hiden_size": 3}), ("hiden_size",)),
        (at(folder, config={"hidden_size": 16}), (folder, "of another shape")),
        (at(folder, "roberta"), (folder, "bert", "roberta", "backbone.architecture")),
        (at("no-such-user/no-such-model"), ("no-such-user/no-such-model",)),
        (at(tmp_path), (tmp_path, "missing", "encoder.layer.2")),
        (backbone("xlnet", gradient_checkpointing=True), ("XLNet",)),
        (backbone("xlnet", reading_init=True), ("backbone.reading_init",)),
    ):
        with pytest.raises(DataError) as caught:
            start(case, SpanModel)
        assert all(str(word) in str(caught.value) for word in words)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_a_fine_tuned_head_stays_and_a_bare_encoder_gets_a_new_one(
    name: str, tmp_path: Path
) -> None:
    tuned, modules = load_pretrained(backbone(name)), ARCHITECTURES[name].span_head
    # No module of transformers' class is left out, dropout included; so training is the same.
    assert {key for key, _ in tuned.named_children()} == {tuned.base_model_prefix, *modules}
    torch.nn.init.constant_(getattr(tuned, modules[-1]).bias, 3.0)
    tuned.save_pretrained(tmp_path / "tuned")
    AutoModel.from_pretrained(tmp_path / "tuned").save_pretrained(tmp_path / "bare")
    expected = tuned.base_model.state_dict()
    for folder, keeps_head in (("tuned", True), ("bare", False)):
        again = load_pretrained(at(tmp_path / folder, name))
        assert (getattr(again, modules[-1]).bias.tolist() == [3.0, 3.0]) == keeps_head
        torch.testing.assert_close(again.base_model.state_dict(), expected, rtol=0, atol=0)


def test_other_heads_precisions_and_settings_of_a_folder(tmp_path: Path) -> None:
    """Another task's head is not taken; half precision becomes float32; settings replace the
    folder's own.
    """
    config = BertConfig(**backbone("bert").config, num_hidden_layers=1, num_attention_heads=4)
    BertForSequenceClassification(config).save_pretrained(tmp_path / "task")
    assert type(load_pretrained(at(tmp_path / "task"))).__name__ == "BertForQuestionAnswering"
    load_pretrained(backbone("bert")).to(torch.bfloat16).save_pretrained(tmp_path / "half")
    assert AutoModel.from_pretrained(tmp_path / "half").dtype == torch.bfloat16
    settings = {"hidden_dropout_prob": 0.3}
    model = start(at(tmp_path / "half", gradient_checkpointing=True, config=settings), SpanModel)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert model.encoder.is_gradient_checkpointing
    assert model.config.hidden_dropout_prob == 0.3


Weights = dict[str, torch.Tensor]


def edit(
    folder: Path, change: Callable[[Weights], Weights], file: str = "model.safetensors"
) -> Path:
    """Replace the weights in a folder."""
    weights = load_file(folder / file)
    save_file(change(weights), folder / file, metadata={"format": "pt"})
    return folder


def without(part: str) -> Callable[[Weights], Weights]:
    def change(weights: Weights) -> Weights:
        assert any(part in name for name in weights)
        return {name: weight for name, weight in weights.items() if part not in name}

    return change


def more(name: str) -> Callable[[Weights], Weights]:
    return lambda weights: {**weights, name: torch.zeros(2)}


def opened(path: object) -> Any:
    return open_answerer(str(path), Asking(device="cpu"))


CHANGES = {
    "gpt2": (without("transformer.h.1."), more("transformer.h.9.bias"), more("score.weight")),
    "t5": (without("decoder.block.1."), more("decoder.block.9.bias"), more("v_head.summary.bias")),
    "bert": (without("layer.1."), more("bert.encoder.layer.9.bias"), more("bert.adapters.bias")),
}


@pytest.mark.parametrize(
    ("kind", "form"), [*((kind, "{}") for kind in CHANGES), ("gpt2", "hf:{}"), ("t5", "hf:{}")]
)
def test_a_model_without_a_layer_or_with_foreign_weights_is_refused(
    kind: str, form: str, tmp_path: Path
) -> None:
    for change in CHANGES[kind]:
        folder = tmp_path / kind
        edit(save_folder(folder) if kind == "bert" else save(folder, kind), change)
        with pytest.raises(ValueError, match=f"{folder}: does not fit its configuration: weights"):
            opened(form.format(folder))


def test_other_heads_of_an_encoder_are_ignored_and_hf_before_it_is_refused(tmp_path: Path) -> None:
    folder = edit(save_folder(tmp_path / "qa"), more("cls.predictions.bias"))
    assert opened(folder).model.heads == "span"
    with pytest.raises(ValueError, match="is an encoder, no language model; leave out hf:"):
        opened(f"hf:{folder}")


def test_a_checkpoint_with_fewer_layers_by_backbone_config_is_refused(tmp_path: Path) -> None:
    torch.save(content(start(backbone("bert"), SpanModel)), tmp_path / "a.ckpt")
    with pytest.raises(ValueError, match=r"a\.ckpt: its configuration has no place for 16 weights"):
        start(at(tmp_path / "a.ckpt", config={"num_hidden_layers": 1}), SpanModel)


def test_a_scorer_without_its_head_is_refused(tmp_path: Path) -> None:
    save_classifier(output=tmp_path / "scorer")
    edit(tmp_path / "scorer", without("classifier"))
    with pytest.raises(ValueError, match=r"--scorer hf:.*weights missing, as classifier"):
        Scorer(f"hf:{tmp_path / 'scorer'}", device="cpu")
