"""Checkpoints that stand on their own, and what may start from what; damaged ones are in
tests/mistakes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForQuestionAnswering

from interventune.models.__main__ import export
from interventune.models.backbones import EncoderModel
from interventune.models.checkpoint import HEADS, heads_class
from interventune.models.heads.choice import ChoiceModel
from interventune.models.heads.span import QAModel, SpanModel
from interventune.models.loading import load, read_info, start
from interventune.models.weights import fingerprint
from interventune.storage.errors import DataError
from tests.models import tiny
from tests.models.tiny import at, call, model, rows, save, tensors


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
    own = AutoModelForQuestionAnswering.from_pretrained(folder).eval()
    taken = {key: value for key, value in inputs.items() if qa.segments or key != "token_type_ids"}
    expected, mask_BT = qa(inputs), inputs["attention_mask"] != 0
    output = own(**taken, output_hidden_states=True)
    assert torch.equal(output.start_logits[mask_BT], expected.start_BT[mask_BT])
    assert torch.equal(output.end_logits[mask_BT], expected.end_BT[mask_BT])
    for theirs, ours in zip(output.hidden_states, qa.hidden_states(inputs), strict=True):
        torch.testing.assert_close(theirs[mask_BT], ours[mask_BT])
    loaded, info = load(str(folder), QAModel)
    assert (info.architecture, info.heads) == (loaded.architecture, "") == (name, "")
    assert (info.tokenizer, info.encoding) == (str(folder), tiny.ENCODING)
    assert torch.equal(loaded(inputs).start_BT, expected.start_BT)


@torch.no_grad()
def test_what_an_export_cannot_hold_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    qa, inputs, folder = model("bert", "rationale"), rows([9]), tmp_path / "folder"
    path = save(tmp_path, qa)
    export(str(path), folder)
    own = AutoModelForQuestionAnswering.from_pretrained(folder).eval()
    assert torch.equal(own(**inputs).start_logits, qa(*call(qa, inputs)).start_BT)
    assert "'rationale' heads" in caplog.text
    refused(folder, export, str(path), folder)  # there already
    for heads in ("xlnet", "choice"):
        refused(path, export, str(save(tmp_path, model("bert", heads))), tmp_path / "other")
    refused(folder, export, str(folder), tmp_path / "other")
    assert not (tmp_path / "other").exists()


ENCODER_HEADS = [heads for heads in HEADS if heads != "causal"]


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
            output, before = (
                qa(inputs) if qa.heads == "span" else qa(inputs, context_BT)
                for qa in (new.eval(), old)
            )
            torch.testing.assert_close(output.start_BT, before.start_BT)
            if new_heads != "xlnet":
                assert torch.equal(output.end_BT, before.end_BT)


@torch.no_grad()
def test_a_folder_gives_encoder_and_span_head(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And to a model of multiple choice a random head, always the same: a baseline that knows
    nothing. One without a span head is evaluated with a warning.
    """
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
