"""Decoders in every form that a checkpoint has, and in every protocol."""

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
from models.__main__ import main as models_main
from models.adapters import own_weights
from models.backbones import Backbone
from models.checkpoint import KEY, describe, start
from models.heads.causal import CausalModel
from tests.evaluation.cells import Cells
from tests.evaluation.checkpoints import GROUPS, QUESTIONS, told
from tests.evaluation.protocol_cases import CASES, Case, make_room

ASKED = [case for case in CASES if case.protocol != "ask" and "--checkpoint" in case.flags(Path())]
FORMS = [case for case in CASES if case.protocol in ("bias", "bbq", "confusion", "faithfulness")]


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The room of all cases; its causal model also as a checkpoint, and with an adapter; both exported."""
    root = tmp_path_factory.mktemp("room")
    make_room(root)
    files = tokenizer_files(AutoTokenizer.from_pretrained(root / "causal"))
    encoding = asdict(Encoding(max_length=250, unknown="nothing", offer_unknown=True))
    for name, rank in (("plain", 0), ("adapter", 2)):
        backbone = Backbone(architecture="gpt2", checkpoint=f"{root}/causal", lora_rank=rank)
        model = start(backbone, CausalModel)
        torch.manual_seed(3)
        with torch.no_grad():
            for parameter in model.parameters() if rank else ():
                if parameter.requires_grad:
                    parameter.normal_(0, 0.5)
        weights = {f"model.{key}": value for key, value in model.state_dict().items()}
        content = {"state_dict": own_weights(model, weights, "model."), "global_step": 1}
        torch.save(content | {KEY: describe(model, files, encoding)}, root / f"{name}.ckpt")
        assert models_main(["export", f"{root}/{name}.ckpt", f"{root}/{name}"]) == 0
    return root


def run(case: Case, room: Path, output: Path, *models: str) -> Cells:
    flags = [part for flag in case.flags(room) for part in (models if flag == "{}" else [flag])]
    assert main([case.protocol, *flags, "--device", "cpu", "--output", str(output)]) == 0
    return Cells(output)


@pytest.mark.parametrize("name", ["plain", "adapter"])
@pytest.mark.parametrize("case", FORMS, ids=lambda case: case.protocol)
def test_checkpoint_and_exported_folder_give_the_same_numbers(
    case: Case, name: str, room: Path, tmp_path: Path
) -> None:
    for form in (f"{name}.ckpt", name):
        run(case, room, tmp_path / form, f"m={room}/{form}")
    files = [(tmp_path / form / "results.csv").read_text() for form in (f"{name}.ckpt", name)]
    assert files[0] == files[1]


@pytest.mark.parametrize("case", ASKED, ids=lambda case: case.protocol)
def test_every_protocol_asks_base_and_adapter(case: Case, room: Path, tmp_path: Path) -> None:
    cells = run(case, room, tmp_path / "r", f"base=base:{room}/adapter.ckpt", f"tuned={room}/adapter.ckpt")
    cells.check()
    assert {"base", "tuned"} <= set(cells.frame["checkpoint"])


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


def test_the_word_for_unknown_of_the_training_is_unknown(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = QuestionCheckpoint(f"{room}/adapter.ckpt", Asking(device="cpu"))
    checkpoint.encoding = replace(checkpoint.encoding, unknown="not stated")
    lines = ["Not stated", "attic"]
    monkeypatch.setattr(checkpoint.decoder, "write", lambda inputs, starts, *_: lines[: len(starts)])
    assert {answer.text for answer in checkpoint.answers(QUESTIONS[:2])} == {"unknown", "attic"}
