"""Decoders in every form that a checkpoint has, and in every protocol."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from data_modules.encoding.tokenizers import tokenizer_files
from data_modules.encoding.windows import CHOICE, Encoding, Prompts
from evaluation.__main__ import main
from models.__main__ import main as models_main
from models.adapters import own_weights
from models.backbones import Backbone
from models.checkpoint import KEY, describe
from models.heads.causal import CausalModel
from models.loading import start
from tests.evaluation.cells import Cells
from tests.evaluation.protocol_cases import CASES, Case, make_room

ASKED = [case for case in CASES if case.protocol != "ask" and "--checkpoint" in case.flags(Path())]
FORMS = [case for case in CASES if case.protocol in ("bias", "bbq", "confusion", "faithfulness")]


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The room of all cases; its causal model also as a checkpoint, and with an adapter; both exported."""
    make_room(root := tmp_path_factory.mktemp("room"))
    files = tokenizer_files(AutoTokenizer.from_pretrained(root / "causal"))
    message = {"role": "user", "content": CHOICE.replace("{options}", "{options} or unknown")}
    encoding = asdict(Encoding(max_length=250, prompts=Prompts(choice_prompt=[message])))
    for name, rank in (("plain", 0), ("adapter", 2)):
        backbone = Backbone(architecture="gpt2", checkpoint=f"{root}/causal", lora_rank=rank)
        model = start(backbone, CausalModel)
        torch.manual_seed(3)
        for parameter in model.parameters():
            if rank and parameter.requires_grad:
                torch.nn.init.normal_(parameter, 0, 0.5)
        weights = {f"model.{key}": value for key, value in model.state_dict().items()}
        content = {"state_dict": own_weights(model, weights, "model."), "global_step": 1}
        torch.save(content | {KEY: describe(model, files, encoding)}, root / f"{name}.ckpt")
        assert models_main([f"{root}/{name}.ckpt", f"{root}/{name}"]) == 0
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
    checkpoint, folder = (
        run(case, room, tmp_path / form, f"m={room}/{form}").frame for form in (f"{name}.ckpt", name)
    )
    assert checkpoint.equals(folder)


@pytest.mark.parametrize("case", ASKED, ids=lambda case: case.protocol)
def test_every_protocol_asks_base_and_adapter(case: Case, room: Path, tmp_path: Path) -> None:
    cells = run(case, room, tmp_path / "r", f"base={room}/plain.ckpt", f"tuned={room}/adapter.ckpt")
    cells.check()
    assert {"base", "tuned"} <= set(cells.frame["checkpoint"])
