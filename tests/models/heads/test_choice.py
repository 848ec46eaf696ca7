"""The model of multiple choice against transformers' own encoders."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModel

from models.checkpoint import start
from models.heads.choice import ChoiceModel, Pooling, masked_mean
from tests.models.tiny import NAMES, backbone, model, rows


def questions(*, width: int = 0) -> dict[str, Tensor]:
    """Two questions with three choices each."""
    flat = rows([12, 7, 9, 5, 11, 8], width=width)
    return {key: value.view(2, 3, -1) for key, value in flat.items()}


@pytest.mark.parametrize("pooling", ["masked", "parity"])
@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_logits_are_those_of_a_naive_loop(name: str, pooling: Pooling, tmp_path: Path) -> None:
    """transformers' encoder, one row at a time; the mean in plain Python's order."""
    built, inputs = model(name, "choice", pooling=pooling), questions(width=16)
    built.encoder.save_pretrained(tmp_path)
    naive = AutoModel.from_pretrained(tmp_path).eval()
    wanted = torch.empty(2, 3)
    for b in range(2):
        for n in range(3):
            row = {key: value[b, n][None] for key, value in inputs.items()}
            if not built.segments:
                del row["token_type_ids"]
            hidden_TD = naive(**row).last_hidden_state[0]
            length = int(row["attention_mask"].sum()) if pooling == "masked" else 16
            mean_D = sum(hidden_TD[t] for t in range(length)) / length
            wanted[b, n] = mean_D @ built.choice_head.weight[0] + built.choice_head.bias[0]
    torch.testing.assert_close(built(inputs), wanted, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_padding_counts_with_parity_only_and_choices_stand_for_themselves() -> None:
    narrow, wide = questions(), questions(width=32)
    masked, parity = (model("bert", "choice", pooling=pooling) for pooling in ("masked", "parity"))
    torch.testing.assert_close(masked(narrow), masked(wide), atol=1e-5, rtol=1e-4)
    assert not torch.allclose(parity(narrow), parity(wide), atol=1e-3)
    permuted = masked({key: value[:, [2, 0, 1]] for key, value in narrow.items()})
    torch.testing.assert_close(permuted, masked(narrow)[:, [2, 0, 1]])
    assert masked_mean(torch.ones(1, 4, 2), torch.zeros(1, 4)).tolist() == [[0, 0]]


def test_the_head_starts_small_and_computes_in_float32() -> None:
    config = {"hidden_size": 512, "num_attention_heads": 4, "initializer_range": 0.1}
    head = start(backbone("bert", config=config), ChoiceModel).choice_head
    assert head.weight.std().item() == pytest.approx(0.1, rel=0.2)
    assert not head.bias.any()
    built = model("bert", "choice")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits_BN = built(questions())
    assert logits_BN.dtype == torch.float32
    assert not torch.equal(logits_BN, logits_BN.bfloat16().float())
    assert built.bfloat16()(questions()).dtype == torch.float32
