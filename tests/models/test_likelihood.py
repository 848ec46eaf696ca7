"""The scorer of continuations against whole rows read one by one, and what decoders make of it."""

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from transformers import BloomConfig, BloomForCausalLM

from interventune.models.heads.causal import CausalModel
from interventune.models.language.model_calls import log_likelihoods
from interventune.models.loading import start
from interventune.storage.errors import DataError
from tests.models.tiny import at

NAMES = ("llama", "qwen2", "qwen3", "gpt2")
PROMPTS = ([5, 6, 7, 8, 9], [10, 11], [12, 13, 14])
CONTINUATIONS = (
    ([20, 21, 22], [23], [24, 25]),
    ([30], [31, 32], [33]),
    ([20, 21], [20, 22, 23, 24], [9]),
)
CONFIG = {"vocab_size": 50, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 3}


def decoder(name: str) -> CausalModel:
    torch.manual_seed(0)
    return start(at("random", name, config=CONFIG), CausalModel).eval().double()


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
    model, weight = decoder(name), torch.randn(3, 3, dtype=torch.float64)
    results = []
    for total_BC in (naive(model), log_likelihoods(model.encoder, *padded_rows(side))):
        model.zero_grad()
        (total_BC * weight).sum().backward()
        gradients = [(key, p.grad) for key, p in model.named_parameters() if p.grad is not None]
        results.append((total_BC.detach(), dict(gradients)))
    assert_close(results[1], results[0], rtol=0, atol=1e-5)


def test_hidden_states_do_not_depend_on_padding() -> None:
    model = decoder("gpt2")
    right, left = padded_rows("right")[0], padded_rows("left")[0]
    one, other = model.hidden_states(right), model.hidden_states(left)
    assert len(one) == model.config.num_hidden_layers + 1
    for a, b in zip(one, other, strict=True):
        real = (a[right["attention_mask"] != 0], b[left["attention_mask"] != 0])
        assert_close(*real, rtol=0, atol=1e-9)


def test_a_model_that_counts_distances_itself_is_not_trained(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = BloomConfig(vocab_size=50, hidden_size=32, n_layer=2, n_head=2, initializer_range=0.5)
    BloomForCausalLM(config).save_pretrained(tmp_path)
    with pytest.raises(DataError, match="'bloom' model does not read two candidates"):
        start(at(tmp_path, "causal"), CausalModel)
