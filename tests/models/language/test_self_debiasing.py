"""Self-debiasing and perplexity against worked numbers, naive loops, and the authors' rows."""

import json
import math
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import AutoConfig, AutoModelForCausalLM

from interventune.models.language.model_calls import padded
from interventune.models.language.self_debiasing import chunk_loss, continued, debiased

SIZE, END = 31, 30
TEXTS = [[3, 4, 5, 6], [7, 8], [9, 3, 3, 12, 5]]
PREFIXES = [[10, 11, 12], [20, 21]]
PREFIXED = [[prefix + text for text in TEXTS] for prefix in PREFIXES]
NEW = 7
SIZES: dict[str, dict[str, int]] = {
    "gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64},
    "llama": {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
    | {"num_attention_heads": 2, "num_key_value_heads": 1},
}
numbers = st.floats(-8, 8, width=32)
IDS = [5, 9, 2, 2, 17, 4, 8, 1, 23, 11, 0, 7]


def random_model(kind: str = "gpt2", seed: int = 1) -> Any:
    """Weights large enough that every choice depends on what stands before it."""
    torch.manual_seed(seed)
    ends = {"vocab_size": SIZE, "bos_token_id": END, "eos_token_id": END}
    built: Any = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **SIZES[kind], **ends))
    with torch.no_grad():
        for parameter in built.parameters():
            if parameter.dim() > 1:
                parameter.copy_(torch.randn_like(parameter) * 0.6)
    return built.eval()


def in_rows(input_ids: Tensor, scores: Tensor) -> Tensor:
    """The authors' way: rows of the texts, then a block for each of 2 prefixes; equal scores."""
    blocks_KRV = scores.view(3, -1, scores.shape[1])
    return debiased(blocks_KRV[0], blocks_KRV[1:], decay=50).repeat(3, 1)


def test_the_toys_of_the_oracle(oracle: Path) -> None:
    toys = json.loads((oracle / "selfdebias_toy.json").read_text())
    for decay in (10, 50, 100):
        toy = toys[f"toy1_lambda{decay}"]
        plain, prefixed = (torch.tensor(toy[key]).double() for key in ("p_regular", "p_biased"))
        log_q = debiased(plain.log()[None], prefixed.log()[:, None], decay=decay)[0]
        assert log_q.tolist() == pytest.approx(toy["out_row0_logprob"], abs=1e-5)
    rows = toys["toy2_batch2_prefix2_lambda50"]
    actual = in_rows(torch.zeros(6, 1), torch.tensor(rows["scores_in"]))
    assert torch.allclose(actual, torch.tensor(rows["scores_out"]), atol=1e-5)


@given(st.lists(st.tuples(*[numbers] * 4), min_size=2, max_size=5), st.floats(0, 200))
def test_laws_of_the_transform(rows: list[tuple[float, ...]], decay: float) -> None:
    plain, prefixed = torch.tensor(rows[0]), torch.tensor(rows[1:])
    log_q = debiased(plain, prefixed, decay=decay)
    assert float(log_q.exp().sum()) == pytest.approx(1, abs=1e-5)
    assert torch.equal(debiased(plain, prefixed[:0], decay=decay), plain)  # to the bit
    assert torch.equal(log_q, debiased(plain, prefixed.flip(0), decay=decay))
    assert torch.equal(log_q, debiased(plain, torch.cat([prefixed, prefixed]), decay=decay))
    same = debiased(plain, plain[None], decay=decay)
    assert torch.allclose(same, plain.log_softmax(-1), atol=1e-5)
    # What no prefix makes likelier never loses against the rest.
    spared = plain.softmax(-1) >= prefixed.softmax(-1).amax(0)
    assert (log_q - plain.log_softmax(-1))[spared].ge(-1e-5).all()


def test_the_tokens_of_the_oracle(oracle: Path) -> None:
    authors = json.loads((oracle / "selfdebias_tiny_gpt2.json").read_text())
    model = AutoModelForCausalLM.from_pretrained(oracle / "tiny_gpt2").eval()
    texts = authors["prompts"]
    prefixed = [[prefix + text for text in texts] for prefix in authors["prefixes"]]
    assert continued(model, [texts], new_tokens=8) == authors["default"]["tokens"]
    for decay in (10, 50, 100):
        actual = continued(model, [texts, *prefixed], new_tokens=8, decay=decay)
        assert actual == authors[f"lambda{decay}"]["tokens"]


@pytest.mark.parametrize(("kind", "beams"), [("gpt2", 1), ("gpt2", 3), ("llama", 1), ("llama", 3)])
def test_beams_are_those_of_the_authors_rows(kind: str, beams: int) -> None:
    model = random_model(kind)
    inputs = padded([*TEXTS, *chain(*PREFIXED)], model.device, left=True)
    limits = {"min_new_tokens": NEW, "max_new_tokens": NEW, "num_beams": beams}
    out_RT = model.generate(**inputs, **limits, pad_token_id=END, logits_processor=[in_rows])
    expected = out_RT[: len(TEXTS), inputs["input_ids"].shape[1] :].tolist()
    assert continued(model, [TEXTS, *PREFIXED], new_tokens=NEW, beams=beams) == expected
    assert END not in chain(*expected)  # the end is suppressed, all have the same length
    assert continued(model, [TEXTS], new_tokens=NEW) != expected  # debiasing does something


def test_perplexities_are_those_of_the_oracle(oracle: Path) -> None:
    numbers = json.loads((oracle / "selfdebias_tiny_gpt2.json").read_text())
    model = AutoModelForCausalLM.from_pretrained(oracle / "tiny_gpt2").eval()
    ids = numbers["text"]
    for row in numbers["ppl"]:
        if row["max_len"] == row["stride"]:  # chunks do not overlap here
            pieces = [ids[at : at + row["stride"]] for at in range(0, len(ids), row["stride"])]
            how: Any = {"lead": [], "decay": row["lambda"]}
            losses = [chunk_loss(model, piece, numbers["prefixes"], **how) for piece in pieces]
            for side, loss in zip(("regular", "debiased"), zip(*losses, strict=True), strict=True):
                assert math.exp(sum(loss) / len(ids)) == pytest.approx(row[f"ppl_{side}"], rel=1e-5)


@pytest.mark.parametrize(("kind", "lead"), [("gpt2", []), ("llama", []), ("llama", [END])])
def test_losses_of_chunks_are_those_of_whole_rows(
    kind: str, lead: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the logits of 2 positions of 3 rows at once; an initial token predicts the first one."""
    model = random_model(kind)
    monkeypatch.setattr("interventune.models.language.self_debiasing.LOGITS", 2 * 3 * SIZE)
    actual = chunk_loss(model, IDS, PREFIXES, lead=lead, decay=50)
    count = len(IDS) - 1 + len(lead)  # predicted tokens
    with torch.no_grad():
        whole = [model(torch.tensor([lead + prefix + IDS])).logits for prefix in ([], *PREFIXES)]
    plain_TV, *prefixed = (logits[0, -count - 1 : -1].double() for logits in whole)
    both = plain_TV, debiased(plain_TV, torch.stack(prefixed), decay=50)
    for loss, score_TV in zip(actual, both, strict=True):
        expected = cross_entropy(score_TV, torch.tensor(IDS[-count:]))
        assert loss == pytest.approx(float(expected) * len(IDS), rel=1e-4)
    assert chunk_loss(model, IDS[: 1 - len(lead)], PREFIXES, lead=lead, decay=50) == (0.0, 0.0)
