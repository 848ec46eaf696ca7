"""Missing and unexpected weights are refused on every road from a file to a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from evaluation.answering.asking import Asking
from evaluation.answering.open import open_answerer
from evaluation.answering.scorers import Scorer
from evaluation.reproduce.tiny_classifier import save_classifier
from models.__main__ import export
from models.backbones import Backbone
from models.heads.causal import CausalModel
from models.heads.span import QAModel, SpanModel
from models.loading import load, start
from tests.data_modules.fixtures.tiny_language_models import save
from tests.evaluation.checkpoints import save_folder
from tests.models.tiny import at, backbone, content

peft = pytest.importorskip("peft")
Weights = dict[str, torch.Tensor]


def edit(folder: Path, change: Callable[[Weights], Weights], file: str = "model.safetensors") -> Path:
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


def asked(path: object) -> Any:
    return open_answerer(str(path), Asking(device="cpu"))


@pytest.mark.parametrize("kind", ["gpt2", "t5"])
@pytest.mark.parametrize("form", ["{}", "hf:{}"])
def test_a_language_model_without_a_layer_or_with_foreign_weights_is_refused(
    kind: str, form: str, tmp_path: Path
) -> None:
    layer = {"gpt2": "transformer.h.1.", "t5": "decoder.block.1."}[kind]
    foreign = (f"{layer.replace('1', '9')}bias", "score.weight", "v_head.summary.weight")
    for change in (without(layer), *map(more, foreign)):
        folder = edit(save(tmp_path / kind, kind), change)
        with pytest.raises(ValueError, match=f"{folder}: does not fit its configuration: weights"):
            asked(form.format(folder))


def test_hf_before_an_encoder_is_refused_and_without_it_the_encoder_answers(tmp_path: Path) -> None:
    folder = save_folder(tmp_path / "qa")
    with pytest.raises(ValueError, match="is an encoder, no language model; leave out hf:"):
        asked(f"hf:{folder}")
    assert asked(folder).model.heads == "span"


def test_an_encoder_without_a_layer_is_refused_and_other_heads_are_ignored(tmp_path: Path) -> None:
    for change in (without("layer.1."), more("bert.encoder.layer.9.bias"), more("bert.adapters.weight")):
        folder = edit(save_folder(tmp_path / "qa"), change)
        with pytest.raises(ValueError, match="does not fit its configuration: weights"):
            asked(folder)
    edit(save_folder(tmp_path / "qa"), more("cls.predictions.bias"))
    assert asked(tmp_path / "qa").model.heads == "span"


def test_a_checkpoint_with_fewer_layers_by_backbone_config_is_refused(tmp_path: Path) -> None:
    torch.save(content(start(backbone("bert"), SpanModel)), tmp_path / "a.ckpt")
    with pytest.raises(ValueError, match=r"a\.ckpt: its configuration has no place for 16 weights"):
        start(at(tmp_path / "a.ckpt", config={"num_hidden_layers": 1}), SpanModel)


def test_a_scorer_without_its_head_is_refused(tmp_path: Path) -> None:
    save_classifier(output=tmp_path / "scorer")
    edit(tmp_path / "scorer", without("classifier"))
    with pytest.raises(ValueError, match=r"--scorer hf:.*weights missing, as classifier"):
        Scorer(f"hf:{tmp_path / 'scorer'}", device="cpu")


@pytest.fixture
def peft_folder(tmp_path: Path) -> Path:
    """An adapter of a decoder, as peft writes it."""
    save(tmp_path / "gpt2", "gpt2")
    wanted = Backbone(architecture="gpt2", checkpoint=f"{tmp_path}/gpt2", lora_rank=2)
    torch.save(content(start(wanted, CausalModel)), tmp_path / "a.ckpt")
    export(f"{tmp_path}/a.ckpt", tmp_path / "peft", adapter=True)
    return tmp_path / "peft"


def test_an_adapter_with_weights_too_few_or_too_many_is_refused(peft_folder: Path) -> None:
    assert load(str(peft_folder), QAModel)
    file = "adapter_model.safetensors"
    (name, *_) = load_file(peft_folder / file)
    edit(peft_folder, more(name.replace(".h.", ".h.9")), file)
    with pytest.raises(ValueError, match="does not fit its base: 1 weights too few or too many"):
        load(str(peft_folder), QAModel)
    edit(peft_folder, without(".h.1."), file)
    with pytest.raises(ValueError, match="does not fit its base"):
        load(str(peft_folder), QAModel)


def test_an_adapter_of_a_sequence_to_sequence_model_is_merged_or_refused(tmp_path: Path) -> None:
    torch.manual_seed(0)
    base = AutoModelForSeq2SeqLM.from_pretrained(save(tmp_path / "t5", "t5"))
    wanted = peft.LoraConfig(r=2, task_type="SEQ_2_SEQ_LM", init_lora_weights=False)
    tuned = peft.get_peft_model(base, wanted)
    tuned.save_pretrained(tmp_path / "peft")
    AutoTokenizer.from_pretrained(tmp_path / "t5").save_pretrained(tmp_path / "peft")
    pairs = [("the cat sat", "on the mat")]
    found = asked(f"hf:{tmp_path}/peft").model.log_likelihoods(pairs)[0]
    tuned.merge_and_unload().save_pretrained(tmp_path / "merged")
    AutoTokenizer.from_pretrained(tmp_path / "t5").save_pretrained(tmp_path / "merged")
    expected = asked(f"hf:{tmp_path}/merged").model.log_likelihoods(pairs)[0]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)
    assert not torch.equal(found, asked(f"hf:{tmp_path}/t5").model.log_likelihoods(pairs)[0])
    edit(tmp_path / "peft", without("decoder"), "adapter_model.safetensors")
    with pytest.raises(ValueError, match="does not fit its base"):
        asked(f"hf:{tmp_path}/peft")
