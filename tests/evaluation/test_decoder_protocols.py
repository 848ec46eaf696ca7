"""A decoder and its adapter in every protocol."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from data_modules.encoding.tokenizers import tokenizer_files
from data_modules.encoding.windows import Encoding
from evaluation.__main__ import main
from models.adapters import own_weights
from models.backbones import Backbone
from models.checkpoint import KEY, describe
from models.heads.causal import CausalModel
from models.loading import start
from tests.evaluation.cells import Cells
from tests.evaluation.protocol_cases import CASES, Case

ASKED = [case for case in CASES if case.protocol != "ask" and "--checkpoint" in case.words]


@pytest.fixture(scope="module")
def adapter(room: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of the room's causal model with an adapter."""
    path = tmp_path_factory.mktemp("adapter") / "a.ckpt"
    model = start(Backbone(architecture="gpt2", checkpoint=f"{room}/causal", lora_rank=2), CausalModel)
    torch.manual_seed(3)
    for parameter in model.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, 0, 0.5)
    weights = {f"model.{key}": value for key, value in model.state_dict().items()}
    content = {"state_dict": own_weights(model, weights, "model."), "global_step": 1}
    files = tokenizer_files(AutoTokenizer.from_pretrained(room / "causal"))
    torch.save(content | {KEY: describe(model, files, asdict(Encoding(max_length=250)))}, path)
    return path


@pytest.mark.parametrize("case", ASKED, ids=lambda case: case.protocol)
def test_every_protocol_asks_base_and_adapter(case: Case, room: Path, adapter: Path, tmp_path: Path) -> None:
    models = [f"base={room}/causal", f"tuned={adapter}"]
    assert main(case.asking(room, tmp_path / "r", *models)) == 0
    cells = Cells(tmp_path / "r")
    cells.check()
    assert {"base", "tuned"} <= set(cells.frame["checkpoint"])
