"""The scorer of continuations against whole rows read one by one, and what decoders make of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import BloomConfig, BloomForCausalLM

from interventune.models.backbones import Backbone
from interventune.models.heads.causal import CausalModel
from interventune.models.language.likelihood import log_likelihoods
from interventune.models.loading import load_pretrained, start
from interventune.storage.errors import DataError

NAMES = ("llama", "qwen2", "qwen3", "gpt2")
PROMPTS = ([5, 6, 7, 8, 9], [10, 11], [12, 13, 14])
CONTINUATIONS = (
    ([20, 21, 22], [23], [24, 25]),
    ([30], [31, 32], [33]),
    ([20, 21], [20, 22, 23, 24], [9]),
)


def decoder(name: str, **config: int) -> CausalModel:
    torch.manual_seed(0)
    backbone = Backbone(
        architecture=name,  # type: ignore[arg-type]
        checkpoint="random",
        config={
            "vocab_size": 50,
            "bos_token_id": 0,
            "eos_token_id": 1,
            "pad_token_id": 3,
            **config,
        },
    )
    return CausalModel(load_pretrained(backbone), name).eval()


def padded_rows(side: str) -> tuple[dict[str, Tensor], Tensor]:
    """Padded rows of prompts with their continuations, and where these stand."""
    rows = [sum(more, prompt) for prompt, more in zip(PROMPTS, CONTINUATIONS, strict=True)]
    width = max(map(len, rows)) + 2
    ids, mask = torch.full((3, width), 3), torch.zeros(3, width, dtype=torch.long)
    spans = torch.zeros(3, 3, 2, dtype=torch.long)
    for b, row in enumerate(rows):
        at = width - len(row) if side == "left" else 0
        ids[b, at : at + len(row)], mask[b, at : at + len(row)] = torch.tensor(row), 1
        first = at + len(PROMPTS[b])
        for c, tokens in enumerate(CONTINUATIONS[b]):
            spans[b, c] = torch.tensor((first, first + len(tokens) - 1))
            first += len(tokens)
    return {"input_ids": ids, "attention_mask": mask}, spans


def naive(model: CausalModel) -> Tensor:
    """The same by a full row for each continuation, without padding."""
    totals = []
    for prompt, continuations in zip(PROMPTS, CONTINUATIONS, strict=True):
        for tokens in continuations:
            log_prob_TV = model.encoder(torch.tensor([prompt + tokens])).logits[0].log_softmax(-1)
            at = torch.arange(len(prompt) - 1, len(prompt) + len(tokens) - 1)
            totals.append(log_prob_TV[at, torch.tensor(tokens)].sum())
    return torch.stack(totals).view(3, 3)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", NAMES)
def test_the_shared_prefix_gives_values_and_gradients_of_whole_rows(name: str, side: str) -> None:
    model = decoder(name).double()
    weight = torch.randn(3, 3, dtype=torch.float64)
    expected = naive(model)
    (expected * weight).sum().backward()
    gradients = {key: p.grad.clone() for key, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    total_BC = log_likelihoods(model.encoder, *padded_rows(side))
    (total_BC * weight).sum().backward()
    torch.testing.assert_close(total_BC, expected, rtol=0, atol=1e-5)
    assert gradients.keys() == {key for key, p in model.named_parameters() if p.grad is not None}
    for key, p in model.named_parameters():
        if p.grad is not None:
            torch.testing.assert_close(p.grad, gradients[key], rtol=0, atol=1e-5)


def test_hidden_states_do_not_depend_on_padding() -> None:
    model = decoder("gpt2").double()
    right, left = padded_rows("right")[0], padded_rows("left")[0]
    one, other = model.hidden_states(right), model.hidden_states(left)
    assert len(one) == model.config.num_hidden_layers + 1
    for a, b in zip(one, other, strict=True):
        real = (a[right["attention_mask"] != 0], b[left["attention_mask"] != 0])
        torch.testing.assert_close(*real, rtol=0, atol=1e-9)


def test_a_model_that_counts_distances_itself_is_not_trained(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = BloomConfig(vocab_size=50, hidden_size=32, n_layer=2, n_head=2, initializer_range=0.5)
    BloomForCausalLM(config).save_pretrained(tmp_path)
    with pytest.raises(DataError, match="'bloom' model does not read two candidates"):
        start(Backbone(architecture="causal", checkpoint=str(tmp_path)), CausalModel)
