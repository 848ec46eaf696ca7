"""Checkpoints stand alone; what may start from what; what does not fit is named, on every road."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForQuestionAnswering, BertForSequenceClassification

from interventune.evaluation.answering.interface import Asking, open_answerer
from interventune.evaluation.answering.scorers import Scorer, tiny_classifier
from interventune.models.__main__ import export
from interventune.models.backbones import ARCHITECTURES, EncoderModel
from interventune.models.checkpoint import HEADS, fingerprint, heads_class
from interventune.models.heads.span import ChoiceModel, QAModel, SpanModel
from interventune.models.loading import load, load_pretrained, read_info, start
from interventune.storage.documents import DataError
from tests.data_modules.fixtures import tiny_language_models
from tests.evaluation.checkpoints import save_folder
from tests.models import tiny
from tests.models.tiny import at, backbone, call, model, rows, save, tensors

ENCODER_HEADS = [heads for heads in HEADS if heads != "causal"]
Weights = dict[str, torch.Tensor]
Change = Callable[[Weights], Weights]


def refused(path: Path, action: Callable[..., object], *arguments: Any, **options: Any) -> str:
    """What the user reads about `path`: one line that names it."""
    with pytest.raises(DataError) as caught:
        action(*arguments, **options)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


@pytest.mark.parametrize(("name", "heads"), tiny.MODELS)
@torch.no_grad()
def test_a_checkpoint_stands_alone(name: str, heads: str, tmp_path: Path) -> None:
    built = model(name, heads)
    path = save(tmp_path, built)
    loaded, info = load(str(path), ChoiceModel if heads == "choice" else QAModel)
    assert info == read_info(str(path))
    assert (info.architecture, info.heads, info.step) == (name, heads, 12)
    assert (info.tokenizer, info.encoding) == (tiny.TOKENIZER, tiny.ENCODING)
    assert (type(loaded), loaded.training) == (type(built), False)
    assert fingerprint(loaded) == fingerprint(built)
    assert built.config.to_dict().items() <= loaded.config.to_dict().items()
    inputs = call(built, rows([12, 7], width=16))
    for actual, expected in zip(tensors(loaded(*inputs)), tensors(built(*inputs)), strict=True):
        assert torch.equal(actual, expected)
    again = start(at(path, name), heads_class(heads))
    assert again.training
    assert fingerprint(again) == fingerprint(built)


@pytest.mark.parametrize("name", tiny.NAMES)
@torch.no_grad()
def test_a_folder_gives_a_span_model_and_a_span_model_a_folder(name: str, tmp_path: Path) -> None:
    """`export` writes a folder of transformers, which `load` takes as any other."""
    qa, inputs, folder = model(name), rows([12, 7]), tmp_path / "new" / "folder"
    export(str(save(tmp_path, qa)), folder)
    assert {file: (folder / file).read_text() for file in tiny.TOKENIZER} == tiny.TOKENIZER
    assert len({file.stat().st_mode for file in folder.iterdir()}) == 1  # as the umask says
    own = AutoModelForQuestionAnswering.from_pretrained(folder).eval()
    taken = {key: value for key, value in inputs.items() if qa.segments or key != "token_type_ids"}
    expected, mask_BT = qa(inputs), inputs["attention_mask"] != 0
    output = own(**taken, output_hidden_states=True)
    assert torch.equal(output.start_logits[mask_BT], expected.start_BT[mask_BT])
    assert torch.equal(output.end_logits[mask_BT], expected.end_BT[mask_BT])
    for theirs, ours in zip(output.hidden_states, qa.hidden_states(inputs), strict=True):
        torch.testing.assert_close(theirs[mask_BT], ours[mask_BT])
    # No module of transformers' class is left out, dropout included; so training is the same.
    modules = {own.base_model_prefix, *ARCHITECTURES[name].span_head}
    assert {key for key, _ in own.named_children()} == modules
    AutoModel.from_pretrained(folder).save_pretrained(tmp_path / "bare")
    bare = start(at(tmp_path / "bare", name), SpanModel)
    assert fingerprint(bare.encoder) == fingerprint(qa.encoder)
    assert fingerprint(bare) != fingerprint(qa)  # a new head
    loaded, info = load(str(folder), QAModel)
    assert (info.architecture, info.heads) == (loaded.architecture, "") == (name, "")
    assert (info.tokenizer, info.encoding) == (str(folder), tiny.ENCODING)
    assert torch.equal(loaded(inputs).start_BT, expected.start_BT)


@torch.no_grad()
def test_an_export_says_what_it_lacks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    qa, inputs, folder = model("bert", "rationale"), rows([9]), tmp_path / "folder"
    path = save(tmp_path, qa)
    export(str(path), folder)
    own = AutoModelForQuestionAnswering.from_pretrained(folder).eval()
    assert torch.equal(own(**inputs).start_logits, qa(*call(qa, inputs)).start_BT)
    read_info(str(folder))
    assert [record.args[0] for record in caplog.records] == [str(path), str(folder)]
    refused(folder, export, str(path), folder)  # there already
    for heads in ("xlnet", "choice"):
        refused(path, export, str(save(tmp_path, model("bert", heads))), tmp_path / "other")
    refused(folder, export, str(folder), tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("old_heads", ENCODER_HEADS)
@torch.no_grad()
def test_what_may_start_from_what(old_heads: str, tmp_path: Path) -> None:
    old, inputs = model("bert", old_heads), rows([9])
    path = save(tmp_path, old)
    for new_heads in ENCODER_HEADS:
        kind = heads_class(new_heads)
        if old_heads not in (new_heads, *kind.starts_from):
            assert f"{old_heads!r} heads" in refused(path, start, at(path), kind)
            continue
        new = start(at(path), kind)
        assert (type(new), new.training) == (kind, True)
        assert fingerprint(new.encoder) == fingerprint(old.encoder)
        if "choice" not in (old_heads, new_heads):
            context_BT = inputs["attention_mask"] != 0
            arguments = (inputs, context_BT)
            pair = (qa(*arguments[: 1 + (qa.heads != "span")]) for qa in (new.eval(), old))
            output, before = pair
            torch.testing.assert_close(output.start_BT, before.start_BT)
            if new_heads != "xlnet":
                assert torch.equal(output.end_BT, before.end_BT)


@torch.no_grad()
def test_a_folder_gives_encoder_and_head(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Heads of multiple choice are random, always the same; a missing span head costs a warning."""
    span, inputs, folder = model("bert"), rows([9]), tmp_path / "qa"
    tiny.to_pretrained(span).save_pretrained(folder)
    for heads in ("rationale", "xlnet"):
        qa: Any = start(at(folder), heads_class(heads)).eval()
        start_BT = qa(inputs, inputs["attention_mask"] != 0).start_BT
        torch.testing.assert_close(start_BT, span(inputs).start_BT)
    (first, info), (second, _) = (load(str(folder), ChoiceModel) for _ in range(2))
    assert info.encoding == {}  # which is that of other heads
    assert fingerprint(first) == fingerprint(second)
    assert fingerprint(first.encoder) == fingerprint(span.encoder)
    span.encoder.save_pretrained(tmp_path / "encoder")
    caplog.clear()
    for source, levels in ((folder, []), (tmp_path / "encoder", ["WARNING"])):
        load(str(source), QAModel)
        assert [record.levelname for record in caplog.records] == levels


@pytest.mark.parametrize(
    ("heads", "stored", "asked_for"),
    [("rationale", {"tagged": "all"}, {"tagged": "story"}), ("choice", {}, {"pooling": "parity"})],
)
def test_options_of_the_heads_must_agree_and_settings_win(
    heads: str, stored: dict[str, Any], asked_for: dict[str, Any], tmp_path: Path
) -> None:
    built, kind = model("bert", heads, **stored), heads_class(heads)
    path = save(tmp_path, built)
    assert fingerprint(load(str(path), EncoderModel)[0]) == fingerprint(built)
    assert fingerprint(start(at(path), kind, **stored)) == fingerprint(built)
    message = refused(path, start, at(path), kind, **asked_for)
    assert all(repr(value) in message for value in (*stored.values(), *asked_for.values()))
    changed = at(path, config={"hidden_dropout_prob": 0.25})
    assert start(changed, kind, **stored).config.hidden_dropout_prob == 0.25
    for wrong in ({"hidden_size": 8}, {"hiden": 8}):
        refused(path, start, at(path, config=wrong), kind, **stored)


def test_another_kind_or_architecture_is_named(tmp_path: Path) -> None:
    path = save(tmp_path, model("electra"))
    refused(path, load, str(path), ChoiceModel)
    assert "'electra'" in refused(path, start, at(path, "bert"), SpanModel)
    assert "'xlnet'" in refused(path, read_info(str(path)).require, heads="xlnet")
    refused(save(tmp_path, model("bert", "choice")), load, str(path), QAModel)


@pytest.mark.parametrize("name", ["bert", "roberta", "electra"])
def test_reading_init_changes_the_encoder(name: str) -> None:
    """Also ELECTRA's, whose embeddings are narrower than its layers."""
    ready, plain = (load_pretrained(backbone(name, reading_init=init)) for init in (True, False))
    positions = [part.base_model.embeddings.position_embeddings for part in (ready, plain)]
    one, other = (table.weight.pow(2).mean() for table in positions)
    assert one > 9 * other
    assert torch.isfinite(SpanModel(ready, name).eval()(rows([9])).start_BT).all()


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    load_pretrained(backbone("bert")).save_pretrained(folder := tmp_path / "bert")
    load_pretrained(backbone("bert")).save_pretrained(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    path = save(tmp_path, model("bert"))
    for case, words in (
        (at(folder, config={"hiden_size": 3}), ("hiden_size",)),
        (at(folder, config={"hidden_size": 16}), (folder, "of another shape")),
        (at(folder, "roberta"), (folder, "bert", "roberta", "backbone.architecture")),
        (at("no-such-user/no-such-model"), ("no-such-user/no-such-model",)),
        (at(tmp_path), (tmp_path, "missing", "encoder.layer.2")),
        (at(path, config={"num_hidden_layers": 1}), (path, "has no place for 16 weights")),
        (backbone("xlnet", gradient_checkpointing=True), ("XLNet",)),
        (backbone("xlnet", reading_init=True), ("backbone.reading_init",)),
    ):
        with pytest.raises(DataError) as caught:
            start(case, SpanModel)
        assert all(str(word) in str(caught.value) for word in words)
        assert "\n" not in str(caught.value)


def test_other_heads_precisions_and_settings_of_a_folder(tmp_path: Path) -> None:
    """Another task's head is not taken; half precision becomes float32; settings win."""
    config = load_pretrained(backbone("bert")).config
    BertForSequenceClassification(config).save_pretrained(tmp_path / "task")
    assert type(load_pretrained(at(tmp_path / "task"))).__name__ == "BertForQuestionAnswering"
    load_pretrained(backbone("bert")).to(torch.bfloat16).save_pretrained(tmp_path / "half")
    assert AutoModel.from_pretrained(tmp_path / "half").dtype == torch.bfloat16
    settings = {"hidden_dropout_prob": 0.3}
    qa = start(at(tmp_path / "half", gradient_checkpointing=True, config=settings), SpanModel)
    assert {parameter.dtype for parameter in qa.parameters()} == {torch.float32}
    assert qa.encoder.is_gradient_checkpointing
    assert qa.config.hidden_dropout_prob == 0.3


def edit(folder: Path, change: Change, file: str = "model.safetensors") -> Path:
    """Replace the weights in a folder."""
    weights = load_file(folder / file)
    save_file(change(weights), folder / file, metadata={"format": "pt"})
    return folder


def without(part: str) -> Change:
    def change(weights: Weights) -> Weights:
        assert any(part in name for name in weights)
        return {name: weight for name, weight in weights.items() if part not in name}

    return change


def more(name: str) -> Change:
    return lambda weights: {**weights, name: torch.zeros(2)}


def opened(path: object) -> Any:
    return open_answerer(str(path), Asking(device="cpu"))


CHANGES = {
    "gpt2": (without("transformer.h.1."), more("transformer.h.9.bias"), more("score.weight")),
    "t5": (without("decoder.block.1."), more("decoder.block.9.bias"), more("v_head.summary.bias")),
    "bert": (without("layer.1."), more("bert.encoder.layer.9.bias"), more("bert.adapters.bias")),
}
SAVE: dict[str, Any] = dict.fromkeys(("gpt2", "t5"), tiny_language_models.save)
SAVE["bert"] = save_folder


@pytest.mark.parametrize(
    ("kind", "form"), [*((kind, "{}") for kind in CHANGES), ("gpt2", "hf:{}"), ("t5", "hf:{}")]
)
def test_missing_or_foreign_weights_are_refused(kind: str, form: str, tmp_path: Path) -> None:
    for change in CHANGES[kind]:
        folder = edit(SAVE[kind](tmp_path / kind, kind), change)
        with pytest.raises(ValueError, match=f"{folder}: does not fit its configuration: weights"):
            opened(form.format(folder))


def test_other_heads_of_an_encoder_are_ignored_and_hf_before_it_is_refused(tmp_path: Path) -> None:
    folder = edit(save_folder(tmp_path / "qa"), more("cls.predictions.bias"))
    assert opened(folder).model.heads == "span"
    with pytest.raises(ValueError, match="is an encoder, no language model; leave out hf:"):
        opened(f"hf:{folder}")


def test_a_scorer_without_its_head_is_refused(tmp_path: Path) -> None:
    for part in tiny_classifier():
        part.save_pretrained(tmp_path / "scorer")
    edit(tmp_path / "scorer", without("classifier"))
    with pytest.raises(ValueError, match=r"--scorer hf:.*weights missing, as classifier"):
        Scorer(f"hf:{tmp_path / 'scorer'}", device="cpu")
