"""LoRA of tiny models: what stands on what, folders of peft, and bases changed or gone."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch.testing import assert_close

from interventune.models.__main__ import export
from interventune.models.adapters import own_weights
from interventune.models.backbones import ARCHITECTURES, EncoderModel
from interventune.models.checkpoint import heads_class
from interventune.models.heads.span import QAModel
from interventune.models.loading import load, load_pretrained, read_info, start
from interventune.storage.documents import DataError
from tests.data_modules.fixtures.tiny_language_models import likelihoods, save
from tests.models.test_loading import edit, more, opened, without
from tests.models.tiny import VOCABULARY, at, backbone, content, rows, to_pretrained

peft = pytest.importorskip("peft")
INPUTS = rows([9, 12])
PEFT_FILE = "adapter_model.safetensors"


def kind_of(name: str) -> Any:
    return heads_class("causal" if ARCHITECTURES[name].causal else "span")


def base(folder: Path, name: str) -> Path:
    """A Hugging Face folder of random weights."""
    torch.manual_seed(1)
    decoder = at("random", name, config={"vocab_size": VOCABULARY})
    load_pretrained(decoder if decoder.causal else backbone(name)).save_pretrained(folder)
    return folder


def written(path: Path, model: Any) -> Path:
    """A checkpoint of a model in training, with what it must contain."""
    saved = content(model)
    saved["state_dict"] = own_weights(model, saved["state_dict"])
    torch.save(saved, path)
    return path


def trained(path: Path, on: Path | str, name: str, **options: Any) -> Path:
    """A checkpoint of an adapter with random weights on a base."""
    model = start(at(on, name, **{"lora_rank": 2, **options}), kind_of(name))
    for weight in model.parameters():
        if weight.requires_grad:
            weight.data += 0.05 * torch.randn_like(weight)
    return written(path, model)


def states(path: Path | str) -> torch.Tensor:
    """Of a decoder; of an encoder what its head makes of them."""
    model, _ = load(str(path), QAModel)
    return (model.encode(INPUTS) if model.heads == "causal" else model(INPUTS).start_BT).detach()


@pytest.mark.parametrize("name", ["gpt2", "bert", "modernbert"])
def test_a_folder_of_peft_is_written_and_read(name: str, tmp_path: Path) -> None:
    checkpoint, folder = tmp_path / "a.ckpt", tmp_path / "peft"
    trained(checkpoint, base(tmp_path / "base", name), name)
    export(str(checkpoint), folder, adapter=True)
    kind = "CausalLM" if ARCHITECTURES[name].causal else "QuestionAnswering"
    below = getattr(transformers, f"AutoModelFor{kind}").from_pretrained(tmp_path / "base")
    theirs = peft.PeftModel.from_pretrained(below, folder).eval()
    ours = to_pretrained(start(at(checkpoint, name, lora_rank=2), kind_of(name)).eval())
    inputs = {key: value for key, value in INPUTS.items() if key != "token_type_ids"}
    for output, other in zip(theirs(**inputs)[:2], ours(**inputs)[:2], strict=True):
        if isinstance(output, torch.Tensor):
            assert_close(output, other, rtol=0, atol=1e-6)
    # As a starting point, and to be asked: merged.
    assert_close(states(folder), states(checkpoint), rtol=0, atol=1e-6)
    whole, adapted = (start(at(folder, name, lora_rank=n), kind_of(name)) for n in (0, 3))
    assert all(weight.requires_grad for weight in whole.parameters())
    for key, weight in adapted.named_parameters():
        assert weight.requires_grad == ("lora_" in key or "span_head" in key)
    again = trained(tmp_path / "again.ckpt", folder, name, lora_rank=3)
    assert read_info(str(again)).adapter["base"] == str(folder)
    assert not torch.equal(states(again), states(checkpoint))


def test_other_settings_than_the_bases_stay(tmp_path: Path) -> None:
    config = {"layer_norm_eps": 0.5}
    path = tmp_path / "a.ckpt"
    model = start(
        at(base(tmp_path / "b", "bert"), "bert", lora_rank=2, config=config), kind_of("bert")
    )
    written(path, model.eval())
    assert_close(states(path), model(INPUTS).start_BT)
    with pytest.raises(DataError, match="--adapter"):
        export(str(path), tmp_path / "peft", adapter=True)


def test_adapters_on_adapters_and_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trained(tmp_path / "a.ckpt", "random", "bert")
    assert "random base" in caplog.text
    planted = tmp_path / "planted.ckpt"
    torch.manual_seed(0)
    torch.save(content(start(backbone("bert"), heads_class("span"))), planted)
    first = trained(tmp_path / "first.ckpt", planted, "bert")
    second = trained(tmp_path / "second.ckpt", first, "bert", lora_rank=3)
    export(str(second), tmp_path / "merged")
    assert_close(states(second), states(tmp_path / "merged"), rtol=0, atol=1e-6)
    assert read_info(str(second)).adapter["base"] == str(first)
    export(str(first), tmp_path / "peft", adapter=True)
    with pytest.raises(DataError, match=r"its base is .*planted\.ckpt; export that"):
        states(tmp_path / "peft")
    with pytest.raises(DataError, match=r"export the whole model, without --adapter"):
        export(str(planted), tmp_path / "none", adapter=True)
    same = trained(tmp_path / "same.ckpt", first, "bert")  # goes on with the first
    assert read_info(str(same)).adapter["base"] == str(planted)


@pytest.mark.parametrize("heads", ["rationale", "xlnet", "choice"])
def test_other_heads_start_from_a_merged_adapter(heads: str, tmp_path: Path) -> None:
    """On a checkpoint with an adapter, whatever rank is asked for; and once more on top of it."""
    span = trained(tmp_path / "span.ckpt", base(tmp_path / "base", "bert"), "bert")
    merged = load(str(span), QAModel)[0].encoder.state_dict()
    for rank in (0, 2):
        model = start(at(span, lora_rank=rank), heads_class(heads))
        weights = model.encoder.state_dict().items()
        below = {name.replace(".base_layer", ""): weight for name, weight in weights}
        assert all(torch.equal(below[name], weight) for name, weight in merged.items())
        embeddings = model.encoder.embeddings.parameters()
        assert all(weight.requires_grad == (not rank) for weight in embeddings)
    again, info = load(str(written(tmp_path / "other.ckpt", model)), EncoderModel)
    assert (info.adapter["base"], again.heads) == (str(span), heads)
    own = [name for name in model.state_dict() if not name.startswith("encoder.")]
    assert own
    assert all(torch.equal(again.state_dict()[name], model.state_dict()[name]) for name in own)


def test_a_base_that_is_gone_or_changed_is_an_error(tmp_path: Path) -> None:
    checkpoint = trained(tmp_path / "a.ckpt", base(tmp_path / "base", "bert"), "bert")
    config = (file := tmp_path / "base/config.json").read_text()
    file.write_text(config.replace('"gelu"', '"relu"'))
    for _ in range(2):
        with pytest.raises(DataError, match=r"a\.ckpt: its adapter needs .*: its files have"):
            states(checkpoint)
        base(tmp_path / "base", "distilbert")
    shutil.rmtree(tmp_path / "base")
    with pytest.raises(DataError, match=r"its adapter needs .*: no \.ckpt"):
        states(checkpoint)


def test_an_adapter_with_weights_too_few_or_too_many_is_refused(tmp_path: Path) -> None:
    checkpoint = trained(tmp_path / "a.ckpt", base(tmp_path / "base", "gpt2"), "gpt2")
    export(str(checkpoint), folder := tmp_path / "peft", adapter=True)
    assert load(str(folder), QAModel)
    (name, *_) = load_file(folder / PEFT_FILE)
    for change in (more(name.replace(".h.", ".h.9")), without(".h.1.")):
        edit(folder, change, PEFT_FILE)
        with pytest.raises(ValueError, match=r"does not fit its base: \d+ weights too few or too"):
            load(str(folder), QAModel)


def test_an_adapter_of_a_sequence_to_sequence_model_is_merged_or_refused(tmp_path: Path) -> None:
    torch.manual_seed(0)
    base = transformers.AutoModelForSeq2SeqLM.from_pretrained(save(tmp_path / "t5", "t5"))
    adapter = peft.LoraConfig(r=2, task_type="SEQ_2_SEQ_LM", init_lora_weights=False)
    tuned = peft.get_peft_model(base, adapter)
    tuned.save_pretrained(tmp_path / "peft")
    tuned.merge_and_unload().save_pretrained(tmp_path / "merged")
    tokenizer, scores = transformers.AutoTokenizer.from_pretrained(tmp_path / "t5"), {}
    for folder in ("peft", "merged", "t5"):
        tokenizer.save_pretrained(tmp_path / folder)
        model = opened(f"hf:{tmp_path / folder}").writer
        scores[folder], _ = likelihoods(model, [("the cat sat", "on the mat")])
    assert scores["peft"] == pytest.approx(scores["merged"], abs=1e-4)
    assert scores["peft"] != pytest.approx(scores["t5"], abs=1e-4)
    edit(tmp_path / "peft", without("decoder"), PEFT_FILE)
    with pytest.raises(ValueError, match="does not fit its base"):
        opened(f"hf:{tmp_path}/peft")
