"""Every protocol asks a decoder's checkpoint: the base of an adapter and the adapter, in one report."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from data_modules.encoding.tokenizers import tokenizer_files
from data_modules.encoding.windows import Encoding
from evaluation.__main__ import main
from evaluation.answering.checkpoint import QuestionCheckpoint
from evaluation.answering.interface import Asking
from evaluation.answering.language_model import open_language_model
from models.adapters import own_weights
from models.backbones import Backbone
from models.checkpoint import KEY, describe, start
from models.heads.causal import CausalModel
from tests.evaluation.cells import Cells
from tests.evaluation.checkpoints import GROUPS, QUESTIONS, told
from tests.evaluation.protocol_cases import CASES, Case, make_room

ASKED = [case for case in CASES if case.protocol != "ask"]  # which scores spans


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The room of all cases, and an adapter on its causal model."""
    root = tmp_path_factory.mktemp("room")
    make_room(root)
    folder, rank = root / "causal", {"lora_rank": 2}
    model = start(Backbone(architecture="gpt2", checkpoint=str(folder), **rank), CausalModel)  # type: ignore[arg-type]
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.normal_(0, 0.5)
    files = tokenizer_files(AutoTokenizer.from_pretrained(folder))
    weights = own_weights(
        model, {f"model.{key}": value for key, value in model.state_dict().items()}, "model."
    )
    saved = describe(model, files, asdict(Encoding(max_length=250)))
    torch.save({"state_dict": weights, "global_step": 1, KEY: saved}, root / "adapter.ckpt")
    return root


@pytest.mark.parametrize("case", ASKED, ids=lambda case: case.protocol)
def test_base_and_adapter_side_by_side(case: Case, room: Path, tmp_path: Path) -> None:
    asked = [f"base=base:{room}/adapter.ckpt", f"tuned={room}/adapter.ckpt"]
    flags = [part for flag in case.flags(room) for part in (asked if flag == "{}" else [flag])]
    command = [case.protocol, *flags, "--device", "cpu"]
    assert main([*command, "--output", str(tmp_path / "r")]) == 0
    cells = Cells(tmp_path / "r")
    cells.check()
    for measure, place in case.n:
        where = dict(place)
        if "sampling" in where or not {"typed", "qa", "choice", "causal"} & {where["checkpoint"]}:
            continue
        values = [cells.row(measure, **(where | {"checkpoint": name})) for name in ("base", "tuned")]
        assert {row["n"] for row in values} == {case.n[measure, place]}


def test_as_language_models(room: Path) -> None:
    """The base is the folder's model to the bit, and the adapter another."""
    pairs = [("anna is in the", " attic"), ("where is anna ?", " in the cellar")]
    names = (f"hf:{room}/causal", f"base:{room}/adapter.ckpt", f"{room}/adapter.ckpt")
    folder, base, tuned = (
        open_language_model(name, device="cpu").log_likelihoods(pairs)[0] for name in names
    )
    assert torch.equal(folder, base)
    assert (tuned - base).abs().min() > 1e-3


def test_threads_do_not_change_scores(room: Path) -> None:
    """Batches of several threads share one model."""
    checkpoint = QuestionCheckpoint(f"{room}/causal", Asking(device="cpu", batch_size=1))
    before, found = torch.get_num_threads(), []
    for threads in (1, 4):
        torch.set_num_threads(threads)
        found.append(checkpoint.subject_scores(GROUPS))
    torch.set_num_threads(before)
    torch.testing.assert_close(*found)


def test_only_an_adapter_has_a_base(room: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["bias", "--checkpoint", f"base:{room}/typed.ckpt", "--data", f"{room}/groups.json"]
    assert "no adapter" in told(capsys, *asked, "--output", tmp_path / "r")


def test_what_it_was_trained_to_write_for_unknown_is_unknown(
    room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = QuestionCheckpoint(f"{room}/adapter.ckpt", Asking(device="cpu"))
    asked.encoding = replace(asked.encoding, unknown="not stated")
    monkeypatch.setattr(
        asked.decoder, "write", lambda inputs, starts, *_: ["Not stated", "attic"][: len(starts)]
    )
    assert {answer.text for answer in asked.answers(QUESTIONS[:2])} == {"unknown", "attic"}
