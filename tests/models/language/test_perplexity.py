"""Perplexity in chunks against the authors' numbers and a naive loop."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from models.language.perplexity import chunk_loss
from tests.models.language.test_self_debiasing import END, PREFIXES, SIZE, naive_log_q, random_model

IDS = [5, 9, 2, 2, 17, 4, 8, 1, 23, 11, 0, 7]


def test_the_numbers_of_the_oracle(oracle: Path) -> None:
    numbers = json.loads((oracle / "selfdebias_tiny_gpt2.json").read_text())
    model = AutoModelForCausalLM.from_pretrained(oracle / "tiny_gpt2").eval()
    ids = numbers["text"]
    for row in numbers["ppl"]:
        if row["max_len"] == row["stride"]:  # chunks do not overlap here
            pieces = [ids[at : at + row["stride"]] for at in range(0, len(ids), row["stride"])]
            how = {"pad": numbers["pad_eos"], "decay": row["lambda"]}
            losses = [chunk_loss(model, piece, numbers["prefixes"], **how) for piece in pieces]
            for side, loss in zip(("regular", "debiased"), zip(*losses, strict=True), strict=True):
                assert math.exp(sum(loss) / len(ids)) == pytest.approx(row[f"ppl_{side}"], rel=1e-5)


@pytest.mark.parametrize(("kind", "lead"), [("gpt2", []), ("llama", []), ("llama", [END])])
def test_losses_are_those_of_a_naive_loop(
    kind: str, lead: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the logits of 2 positions of 3 rows at once; a first token tells the chunk's first one too."""
    model = random_model(kind)
    monkeypatch.setattr("models.language.perplexity.LOGITS", 2 * 3 * SIZE)
    found = chunk_loss(model, IDS, PREFIXES, pad=END, lead=lead)
    regular, debiased = 0.0, 0.0
    first = 1 - len(lead)
    for t in range(first, len(IDS)):
        prefixed = [lead + prefix + IDS[:t] for prefix in PREFIXES]
        regular -= float(naive_log_q(model, lead + IDS[:t], [], ends=True)[IDS[t]])
        debiased -= float(naive_log_q(model, lead + IDS[:t], prefixed, ends=True)[IDS[t]])
    weight = len(IDS) / (len(IDS) - first)  # the first quirk: a target less than the weight
    assert found == pytest.approx((regular * weight, debiased * weight), rel=1e-4)
    assert chunk_loss(model, IDS[: 1 - len(lead)], PREFIXES, pad=END, lead=lead) == (0.0, 0.0)
