"""The compared systems train on the same rows; arithmetic and likelihoods are those of torch and lm-eval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForQuestionAnswering, LlamaConfig, LlamaForCausalLM

from benchmarks import likelihoods, training
from benchmarks.side_by_side import Turn, table
from data_modules.stories.questions import vocabulary
from data_modules.stories.word_tokenizer import build_tokenizer

VOCABULARY = 400
CONFIG = training.sizes(2, 48, 3, VOCABULARY)


@contextmanager
def rows_seen() -> Iterator[Counter[tuple[int, ...]]]:
    """Counts every row of token ids, without padding, that any model looks up."""
    seen: Counter[tuple[int, ...]] = Counter()

    def look(module: nn.Module, arguments: Any) -> None:
        if isinstance(module, nn.Embedding) and module.num_embeddings == VOCABULARY:
            seen.update(tuple(i for i in row if i != 0) for row in arguments[0].tolist())

    hook = register_module_forward_pre_hook(look)
    try:
        yield seen
    finally:
        hook.remove()


@pytest.mark.parametrize("name", training.SYSTEMS)
def test_every_system_trains_once_on_every_window(name: str, tmp_path: Path) -> None:
    job = training.make_job(training.Shape("bert", CONFIG, 13, 4), tmp_path, 0)
    wanted = Counter(tuple(row["input_ids"]) for row in training.windows(job))
    with rows_seen() as seen:
        assert training.SYSTEMS[name](job).rate > 0
    assert seen == wanted


@pytest.mark.parametrize(("rows", "tokens"), [(1, 7), (3, 64)])
def test_flops_are_counted_as_torch_counts_them(rows: int, tokens: int) -> None:
    model = AutoModelForQuestionAnswering.from_config(
        AutoConfig.for_model("bert", **CONFIG), attn_implementation="eager"
    )
    at_B = torch.zeros(rows, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter:
        model(torch.ones(rows, tokens).long(), start_positions=at_B, end_positions=at_B).loss.backward()
    assert training.training_flops(CONFIG, [tokens] * rows) == counter.get_total_flops()


def test_ratios_compare_turn_by_turn() -> None:
    """Noise that halves the rates of both systems in one turn cancels out."""
    rates = {"ours": (6.0, 3.0), "theirs": (2.0, 1.0)}
    made = {name: [Turn(rate, {}) for rate in values] for name, values in rates.items()}
    assert "1.5 (1 to 2)" in table("t", "rows/s", made).splitlines()[-1]
    assert table("t", "rows/s", made).splitlines()[-1].endswith(" 3")


@pytest.mark.skipif(find_spec("lm_eval") is None, reason="lm-eval is not installed")
def test_log_likelihoods_are_those_of_lm_eval(tmp_path: Path) -> None:
    tokenizer = build_tokenizer("llama", sorted({*vocabulary(), "Question", "Answer", ":", "."}))
    sizes = {"hidden_size": 36, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": len(tokenizer)}
    ends = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    config = LlamaConfig(**sizes, **ends, num_attention_heads=3, num_key_value_heads=3)
    for part in (LlamaForCausalLM(config), tokenizer):
        part.save_pretrained(tmp_path)
    assert "questions/s" in likelihoods.measure("stories:choices_dev", str(tmp_path), repeats=1, size=6)
